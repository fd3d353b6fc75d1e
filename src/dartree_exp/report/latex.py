"""Tables as LaTeX with booktabs, from the same cells as Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dartree_exp.console.printable import printable
from dartree_exp.report.table import Cell, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "Δ": r"$\Delta$",
    "τ": r"$\tau$",
    "β": r"$\beta$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "–": "--",
    "†": r"\textdagger{}",
    "\N{MINUS SIGN}": "$-$",
}
HEAD = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}\n"


def escape(text: str) -> str:
    """Plain text as LaTeX text; a minus in front of a digit becomes a real one."""
    signed = re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", printable(text))
    return "".join(_SPECIAL.get(char, char) for char in signed)


def latex(tables: Sequence[Table]) -> str:
    """A file with one float per table; intervals are small below their numbers, notes below the
    table.
    """
    return HEAD + "\n".join(_float(table) for table in tables)


def _float(table: Table) -> str:
    lines = [
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{_caption(table)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.headers) - 1)}}}",
        r"\toprule",
        _row([escape(header.replace("/\n", "/").replace("\n", " ")) for header in table.headers]),
        r"\midrule",
    ]
    for index, row in enumerate(table.rows):
        lines.append(_row([_cell(cell, first=not place) for place, cell in enumerate(row)]))
        if index in table.rules and index < len(table.rows) - 1:
            lines.append(r"\midrule")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        notes = ". ".join(escape(_capital(note)) for note in table.notes)
        lines += [
            r"\par\smallskip",
            rf"\begin{{minipage}}{{\linewidth}}\footnotesize {notes}.\end{{minipage}}",
        ]
    return "\n".join([*lines, r"\end{table}", ""])


def _caption(table: Table) -> str:
    title, lead = escape(_capital(table.title)), escape(_capital(table.lead))
    if not lead:
        return title
    return rf"{title}. \textbf{{{lead}}}" if table.alarm else f"{title}. {lead}"


def _cell(cell: Cell, first: bool) -> str:
    """The cell's lines below each other, all but the first in small type. first: left-aligned."""
    head, *rest = (escape(line) for line in cell.text.split("\n"))
    head = rf"\textbf{{{head}}}" if cell.best or cell.bad else head
    if not rest:
        return head
    lines = r"\\".join([head, *(rf"{{\scriptsize {line}}}" for line in rest)])
    return rf"\begin{{tabular}}[t]{{@{{}}{'l' if first else 'r'}@{{}}}}{lines}\end{{tabular}}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
