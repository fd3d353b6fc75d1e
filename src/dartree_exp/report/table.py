"""A table for the terminal (rich), Markdown and CSV; `latex.py` and `page/` use the same cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from dartree_exp.console.printable import printable

NONE = "–"
ALARM = "bold red"


@dataclass(frozen=True)
class Cell:
    """A cell's text and its columns in a CSV file.

    Attributes:
        text: in the terminal; lines split by a newline.
        values: CSV column -> value.
        markdown: in Markdown; None joins the lines of `text`.
        bad: shown as an alarm: bold, and red if there is colour.
        best: its first line is bold; see `claims.mark_best`.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    markdown: str | None = None
    bad: bool = False
    best: bool = False


@dataclass
class Table:
    """Rows of cells under headers, with `notes` below.

    `lead` is shown between title and rows, in red if `alarm`. `rules`: indices of rows after which
    a line is drawn.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    rules: frozenset[int] = frozenset()
    lead: str = ""
    alarm: bool = False

    def print(self, console: Console) -> None:
        """Print the table and its notes. Outside a terminal the width is not limited."""
        drawn = RichTable(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 1, 0, 0),
        )
        for index, header in enumerate(self.headers):
            # In a narrow terminal, remarks are wrapped; names and numbers are not.
            whole = not index or any(
                key.endswith("_low") for row in self.rows for key in row[index].values
            )
            justify: JustifyMethod = "right" if index else "left"
            drawn.add_column(
                Text(printable(header)), justify=justify, overflow="fold", no_wrap=whole
            )
        for index, row in enumerate(self.rows):
            drawn.add_row(
                *map(_drawn, row),
                end_section=index in self.rules,
            )
        if not console.is_terminal:
            drawn.width = console.measure(drawn, options=console.options.update(width=1000)).maximum
        console.print()
        console.print(Text(printable(self.title), style="bold"), soft_wrap=not console.is_terminal)
        if self.lead:
            console.print(
                Text(printable(self.lead), style=ALARM if self.alarm else ""),
                soft_wrap=not console.is_terminal,
            )
        console.print(drawn, crop=console.is_terminal)
        for note in self.notes:
            console.print(Text(printable(note), style="dim"), soft_wrap=not console.is_terminal)

    def markdown(self) -> str:
        """The table as GitHub Markdown, title and notes included."""
        rows = [[_joined(cell) for cell in row] for row in self.rows]
        headers = [header.replace("/\n", "/").replace("\n", " ") for header in self.headers]
        lines = [f"**{self.title}**", ""]
        lines += [f"**{self.lead}**" if self.alarm else self.lead, ""] if self.lead else []
        lines += [
            _line(cells) for cells in (headers, ["---", *["---:"] * (len(headers) - 1)], *rows)
        ]
        lines += ["", *(f"- {note}" for note in self.notes)]
        return printable("\n".join(lines).rstrip() + "\n")

    def csv(self) -> str:
        """One line per row, one column per number; undefined numbers are empty."""
        records = [
            {_plain(key): _plain(value) for cell in row for key, value in cell.values.items()}
            for row in self.rows
        ]
        keys = list(dict.fromkeys(key for record in records for key in record))
        out = io.StringIO()
        writer = csv.DictWriter(out, keys, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()


def _plain(value: object) -> object:
    """Puts an apostrophe before text that a spreadsheet would read as a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return (
        f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) and not _is_number(text) else text
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def label(name: str, text: str) -> Cell:
    """A name in the column `name`."""
    return Cell(text, {name: text})


def interval(
    name: str, estimate: Mapping[str, float | None], unit: str = "", sign: bool = False
) -> Cell:
    """An estimate {value, low, high}, with the interval on a second line; none below two
    prompts.
    """
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    values = {name: value, f"{name}_low": low, f"{name}_high": high}
    if value is None:
        return Cell(NONE, values)
    style = "+.2f" if sign else ".2f"
    shown = f"{value:{style}}{unit}"
    if low is None or high is None:
        return Cell(f"{shown}\n{NONE}", values, f"{shown} [{NONE}]")
    return Cell(
        f"{shown}\n{low:{style}}…{high:{style}}", values, f"{shown} [{low:{style}}, {high:{style}}]"
    )


def lines(cell: Cell, *more: str) -> Cell:
    """The cell with further lines below it."""
    text = "\n".join([cell.text, *more])
    return replace(
        cell, text=text, markdown=", ".join([_joined(replace(cell, best=False, bad=False)), *more])
    )


def _drawn(cell: Cell) -> Text:
    text = Text(printable(cell.text), style=ALARM if cell.bad else "")
    if cell.best:
        text.stylize("bold", 0, len(text.plain.split("\n")[0]))
    return text


def _joined(cell: Cell) -> str:
    head, *rest = cell.text.split("\n")
    text = ", ".join([head, *rest]) if cell.markdown is None else cell.markdown
    return (
        f"**{head}**{text.removeprefix(head)}"
        if (cell.best or cell.bad) and text.startswith(head)
        else text
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
