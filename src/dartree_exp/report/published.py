"""Numbers from the papers beside ours, clearly marked.

`published.yaml` has the cells with their sources. They were measured on other hardware, with other
models, prompts and settings, so no difference from ours is computed and no best is marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dartree_exp.metrics.measures import METRICS
from dartree_exp.metrics.stats import estimate
from dartree_exp.records import Run
from dartree_exp.report import caveats, footer, verdicts
from dartree_exp.report.labels import name_runs
from dartree_exp.report.table import NONE, Cell, Table
from dartree_exp.report.tables import method_of

MARK = "†"
WARNING = (
    f"{MARK} published by others, on other hardware, with other models and settings: no comparison"
)
AVERAGE = "average"
UNKNOWN_AR = "AR of a kind that the source does not state"
_UNITS = {"speedup": "×"}


@dataclass(frozen=True)
class Row:
    """A published row: numbers by column and quantity (`tau`, `speedup`, `round_ms`,
    `tokens_per_second`).

    `ar`: the plain decoding that its speedups are over.
    """

    set: str
    source: str
    hardware: str
    ar: str
    note: str
    target: str
    temperature: float
    method: str
    columns_are: str
    cells: dict[str, dict[str, float]]


@cache
def published() -> tuple[Row, ...]:
    """Every published row of the data file."""
    return tuple(row for part in _data()["sets"] for row in _rows(part))


def not_here() -> frozenset[str]:
    """Published methods that this framework does not have."""
    return frozenset(_data()["not_here"])


@cache
def _data() -> dict[str, Any]:
    import yaml

    text = (
        resources.files("dartree_exp.report").joinpath("published.yaml").read_text(encoding="utf-8")
    )
    return yaml.safe_load(text)


def _rows(part: dict[str, Any]) -> list[Row]:
    columns = [str(column) for column in part["columns"]]
    third = ["not by the method's authors"] if part.get("third_party") else []
    note = ", ".join([*third, *(str(part[key]) for key in ("settings", "note") if key in part)])
    rows = []
    for target, temperature, method, text in part["rows"]:
        cells = {}
        for column, cell in zip(columns, str(text).split(), strict=True):
            if cell != NONE:
                cells[column] = dict(zip(part["cell"], map(float, cell.split("/")), strict=True))
        rows.append(
            Row(
                part["id"],
                part["source"],
                part["hardware"],
                part.get("ar", UNKNOWN_AR),
                note,
                target,
                float(temperature),
                method,
                part.get("columns_are", "data sets"),
                cells,
            )
        )
    return rows


def published_tables(runs: Sequence[Run]) -> list[Table]:
    """One table per temperature of the runs: ours first, then the published numbers of the same
    methods.
    """
    tables = []
    for temperature in sorted(
        {float(footer.setting(run.config, "decoding.temperature") or 0) for run in runs}
    ):
        ours = [
            r
            for r in runs
            if float(footer.setting(r.config, "decoding.temperature") or 0) == temperature
        ]
        methods = {method_of(run) for run in ours}
        theirs = [
            row
            for row in published()
            if row.method in methods
            and row.temperature == temperature
            and row.columns_are == "data sets"
        ]
        if theirs:
            tables.append(
                _table(ours, sorted(theirs, key=lambda row: (row.target, row.set)), temperature)
            )
    return tables


def _table(ours: Sequence[Run], theirs: Sequence[Row], temperature: float) -> Table:
    names, _ = name_runs(ours)
    named = dict.fromkeys(
        [_benchmark(run) for run in ours] + [c for row in theirs for c in row.cells]
    )
    columns = [*(c for c in named if c != AVERAGE), *(c for c in named if c == AVERAGE)]
    rows = [_our_row(run, columns) for run in ours] + [_their_row(row, columns) for row in theirs]
    notes = [
        WARNING,
        *caveats.of_all(ours, names),
        "cells: tau, then macro speedup over plain decoding (AR)",
        *_whose_ar(ours, theirs),
        *dict.fromkeys(
            f"{MARK} {row.source}" + (f": {row.note}" if row.note else "") for row in theirs
        ),
        *footer.stamp(ours),
        f"ours: tau macro, {METRICS['tau_macro'].definition}; speedup, "
        f"{METRICS['speedup_macro'].definition}",
    ]
    title = f"beside published numbers, T = {temperature:g}"
    rules = frozenset({len(ours) - 1})
    return Table(title, ["method", *columns], rows, notes, rules, *verdicts.lead(ours, names))


def _whose_ar(ours: Sequence[Run], theirs: Sequence[Row]) -> list[str]:
    """The plain decoding that each speedup is over, and how to convert ours to theirs."""
    places = " or ".join(dict.fromkeys(footer.beside(run.config) for run in ours))
    notes = [
        f"ours: speedup over lean AR, our own loop that only decodes one token per step, {places}"
    ]
    for ar in dict.fromkeys(
        row.ar for row in theirs if any("speedup" in cell for cell in row.cells.values())
    ):
        sets = dict.fromkeys(row.source for row in theirs if row.ar == ar)
        notes.append(f"{MARK} speedup over {ar}: {'; '.join(sets)}")
    if any(method_of(run) == "ar" for run in ours):
        notes.append(
            "our row ar: AR through the speculative loop over lean AR; divide another row's "
            "speedup by it to get the speedup over AR through that loop"
        )
    if any(footer.setting(run.config, "protocol") != "paper" for run in ours):
        notes.append(
            "ours includes the time of every draft; DARTree's clock leaves out the first draft of "
            "an answer (protocol=paper)"
        )
    return notes


def _our_row(run: Run, columns: Sequence[str]) -> list[Cell]:
    tau, speedup = (
        estimate(run.samples, metric).value for metric in ("tau_macro", "speedup_macro")
    )
    device = str(
        footer.setting(run.environment, "device_details.name")
        or footer.setting(run.environment, "cpu.model")
    )
    numbers = {"tau": tau, "speedup": speedup}
    cells = [_cell(c, numbers if c == _benchmark(run) else {}) for c in columns]
    name = method_of(run)
    name += "" if name == "ar" else f" (B = {footer.setting(run.config, 'tree.budget')})"
    return [
        _named(name, "this report", str(footer.setting(run.config, "model.name")), device),
        *cells,
    ]


def _their_row(row: Row, columns: Sequence[str]) -> list[Cell]:
    cells = [_cell(column, row.cells.get(column, {})) for column in columns]
    source = re.sub(r", arXiv [\d.]+", "", row.source)
    return [_named(f"{row.method} {MARK}", source, row.target, row.hardware), *cells]


def _named(method: str, source: str, target: str, hardware: str) -> Cell:
    values = {"method": method, "source": source, "target": target, "hardware": hardware}
    return Cell(
        f"{method}\n{target}, {hardware}\n{source}",
        values,
        f"{method}: {target}, {hardware}, {source}",
    )


def _cell(column: str, numbers: dict[str, Any]) -> Cell:
    shown = [
        f"{numbers[key]:.2f}{_UNITS.get(key, '')}"
        for key in ("tau", "speedup")
        if numbers.get(key) is not None
    ]
    values = {f"{column}_{key}": numbers.get(key) for key in ("tau", "speedup")}
    return Cell("\n".join(shown) or NONE, values, " / ".join(shown) or NONE)


def _benchmark(run: Run) -> str:
    return str(footer.setting(run.config, "benchmark.name"))
