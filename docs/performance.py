"""Fills the tables of docs/performance.md and draws its pictures, from records of benchmarks/.

    python docs/performance.py            print the filled page
    python docs/performance.py --write    write it and the pictures

The records are docs/results/performance/*.json; docs/performance.md gives the commands that make
them. A part without its record says so.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dartree_exp.metrics.clock import STAGES
from dartree_exp.records.environment import code_version, overload
from dartree_exp.report.footer import machine
from dartree_exp.report.plots.style import COLOURS, canvas, svg

DOCS = Path(__file__).resolve().parent
PAGE, RECORDS, IMAGES = DOCS / "performance.md", DOCS / "results/performance", DOCS / "images"
AXES = {
    "tree.budget": "budget B",
    "tree.width": "width W",
    "tree.depth": "depth D",
    "tree.candidates": "candidates K",
    "context": "context, ids",
}
Record = Mapping[str, Any]


def cell(estimate: Record, digits: int = 2) -> str:
    """`1.23 [1.10, 1.40]`; the value alone if it has no interval."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None:
        return ""
    return f"{value:.{digits}f}" + (
        "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(name: str, shown: str) -> str:
    return f"![Milliseconds by stage: {shown}](images/performance_{name}.svg)"


def source(record: Record) -> str:
    """The command, machine, load and version of the code of a record."""
    environment = record["environment"]
    busy = overload(environment["load"])
    return (
        f"`{environment['command']}`, {environment['time'][:10]}: {machine(environment)}, "
        f"transformers {environment['packages']['transformers']}, {code_version(environment)}"
        + (f"; **{busy}: times not valid**" if busy else "")
    )


def pairs(before: Record, after: Record) -> list[tuple[str, Record]]:
    """Label and row of each budget, before and after next to each other."""
    rows: dict[str, list[tuple[str, Record]]] = {}
    for when, record in (("before", before), ("after", after)):
        for row in record["scaling"]:
            if row["axis"] == "tree.budget":
                label = f"B = {row['value']}, {when}"
                rows.setdefault(row["value"], []).append((label, row))
    return [pair for same in rows.values() for pair in same]


def stages(records: Mapping[str, Record]) -> str:
    """Milliseconds of each stage by budget, before and after."""
    rows = []
    for label, row in pairs(records["before"], records["after"]):
        spent = row["stages_ms"]
        rest = sum(spent[stage] for stage in ("build", "mask", "commit", "other"))
        rows.append(
            [
                label,
                *(f"{spent[stage]:.2f}" for stage in STAGES),
                f"{row['round_ms']['value']:.1f}",
                f"{rest / sum(spent.values()):.0%}",
                f"{row['tau']:.2f}",
                f"{row['ms_per_token']:.1f}",
            ]
        )
    head = ["", *STAGES, "round", "build, mask, commit, other", "tau", "ms per token"]
    notes = [f"{when.capitalize()}: {source(records[when])}." for when in ("before", "after")]
    return "\n\n".join([picture("rounds", "a round before and after"), table(head, rows), *notes])


def forward(records: Mapping[str, Record]) -> str:
    """Forwards and products by engine, attention, context and rows."""
    rows = [
        [
            *(str(row[key]) for key in ("engine", "attention", "context", "rows")),
            cell(row["forward_ms"], 1),
            cell(row["products_ms"], 1),
            cell(row["ratio"]),
        ]
        for row in records["forward"]["forward"]
    ]
    head = ["engine", "attention", "context", "rows", "forward, ms", "products, ms", "ratio"]
    return f"{table(head, rows)}\n\n{source(records['forward'])}."


def growth(records: Mapping[str, Record]) -> str:
    """Milliseconds of a round along each axis."""
    rows = [
        [
            f"{AXES.get(row['axis'], row['axis'])} = {row['value']}",
            *(f"{row['stages_ms'][stage]:.2f}" for stage in STAGES),
            cell(row["round_ms"], 1),
            f"{row['nodes']:g}",
            f"{row['context']:g}",
            f"{row['tau']:.2f}",
        ]
        for row in records["scaling"]["scaling"]
    ]
    head = ["", *STAGES, "round", "nodes", "context", "tau"]
    drawn = picture("growth", "the stages of a round along each setting")
    return "\n\n".join([drawn, table(head, rows), f"{source(records['scaling'])}."])


def peers(records: Mapping[str, Record]) -> str:
    """Speed of every peer."""
    record = records["peers"]
    found = record["peers"]
    groups = [group for group in found[record["base"]]["ratio"] if group != "all"]
    rows = [
        [
            peer["title"],
            cell(peer["tokens_per_second"], 1),
            *(cell(peer["ratio"][group]) for group in ("all", *groups)),
            cell(peer["ratio_to_ar"] or {"value": None, "low": None, "high": None}),
            f"{len(peer['tokens']) - len(peer['differences'])} of {len(peer['tokens'])}",
            "" if peer["same_as_ar"] is None else f"{peer['same_as_ar']} of {len(peer['tokens'])}",
        ]
        for peer in found.values()
    ]
    base = found[record["base"]]["title"]
    head = ["", "tokens/s", f"over {base}", *groups, "over lean AR", "same ids", "as lean AR"]
    gaps = [p["gap"] for peer in found.values() for p in peer["differences"]]
    known = [gap for gap in gaps if gap is not None]
    notes = [
        f"{len(record['settings']['prompts'])} prompts of `mini`, at most "
        f"{record['settings']['tokens']} new tokens, T = {record['settings']['temperature']:g}; "
        f"median of {record['settings']['repeats']} repeats. {source(record)}."
    ]
    if known:
        notes.append(
            f"Where a text leaves the first peer's, the two tokens' logits are at most "
            f"{max(known):.3g} apart."
        )
    return "\n\n".join([table(head, rows), *notes])


PARTS = {  # name in the page: what fills it, the records it needs
    "stages": (stages, ("before", "after")),
    "forward": (forward, ("forward",)),
    "growth": (growth, ("scaling",)),
    "peers": (peers, ("peers",)),
}


def stacked(axes: Any, rows: list[Record], names: list[str], across: bool = False) -> None:
    """Stacked bars of the stages of each row."""
    before = [0.0] * len(rows)
    for colour, stage in zip(COLOURS, STAGES, strict=True):
        spent = [row["stages_ms"][stage] for row in rows]
        draw, edge = (axes.barh, "left") if across else (axes.bar, "bottom")
        draw(names, spent, color=colour, label=stage, **{edge: before})
        before = [b + s for b, s in zip(before, spent, strict=True)]
    axes.grid(visible=False, axis="y" if across else "x")


def rounds_picture(before: Record, after: Record) -> str:
    """A bar for each budget, before and after."""
    labels, rows = zip(*pairs(before, after), strict=True)
    with canvas(width=8, height=0.8 + 0.3 * len(rows)) as (figure, (axes,)):
        stacked(axes, list(rows), list(labels), across=True)
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds of a round")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=6)
        return svg(figure)


def growth_picture(record: Record) -> str:
    """A small plot for each axis."""
    found = list(dict.fromkeys(row["axis"] for row in record["scaling"]))
    with canvas(len(found), width=2.6 * len(found), height=3) as (figure, plots):
        for axes, axis in zip(plots, found, strict=True):
            rows = [row for row in record["scaling"] if row["axis"] == axis]
            stacked(axes, rows, [row["value"] for row in rows])
            axes.set_xlabel(AXES.get(axis, axis))
            axes.sharey(plots[0])
        plots[0].set_ylabel("milliseconds of a round")
        handles = plots[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper left", ncols=6)
        return svg(figure)


def filled(page: str, records: Mapping[str, Record]) -> str:
    """The page with every part between its marks; raises ValueError for a part without marks."""
    for name, (part, needed) in PARTS.items():
        missing = [need for need in needed if need not in records]
        text = part(records) if not missing else f"Not measured yet: no `{missing[0]}.json`."
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, found = marks.subn(lambda m, text=text: f"{m[1]}{text}\n{m[2]}", page)
        if found != 1:
            raise ValueError(f"{PAGE.name}: {found} places for {name!r}, there must be one")
    return page


def pictures(records: Mapping[str, Record]) -> dict[str, str]:
    """File name -> SVG, of the pictures that have their records."""
    found = {}
    if {"before", "after"} <= set(records):
        found["performance_rounds.svg"] = rounds_picture(records["before"], records["after"])
    if "scaling" in records:
        found["performance_growth.svg"] = growth_picture(records["scaling"])
    return found


def load(folder: Path = RECORDS) -> dict[str, Record]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def main() -> None:
    records = load()
    page = filled(PAGE.read_text(), records)
    if "--write" not in sys.argv[1:]:
        print(page)
        return
    PAGE.write_text(page)
    for name, drawn in pictures(records).items():
        (IMAGES / name).write_text(drawn)


if __name__ == "__main__":
    main()
