"""Several runs side by side: the same numbers, and differences paired by prompt against one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dartree_exp.config.schema import METHODS
from dartree_exp.metrics import METRICS, counts
from dartree_exp.records import RecordError, Run, SampleRecord
from dartree_exp.records.files import write_atomic
from dartree_exp.report import footer
from dartree_exp.report.labels import name_runs
from dartree_exp.report.table import Cell, Table, interval
from dartree_exp.report.tables import also, lossless, method_of
from dartree_exp.stats import estimate, paired_difference


def comparison(
    folders: Iterable[str | Path | Run],
    console: Console | None = None,
    baseline: str | None = None,
    output: Path | None = None,
) -> list[Table]:
    """Compare runs: overall, and tau per category where there are several.

    Args:
        folders: run folders, in any order.
        console: print the tables there.
        baseline: the run that differences are taken from, by its name in the table, its method or its folder's name;
            None takes the first that is not plain decoding.
        output: folder for comparison.md and comparison.csv (which has every category).

    Raises:
        RecordError: a bad folder, lossy runs beside exact ones, or a baseline that names no run or several.
    """
    runs = sorted((f if isinstance(f, Run) else Run(Path(f)) for f in folders), key=_order)
    lossy = [run for run in runs if any(not sample.exact for sample in run.samples)]
    if lossy and len(lossy) < len(runs):
        named = ", ".join(str(run.path) for run in lossy)
        raise RecordError(f"lossy runs never share a table with exact ones; compare these apart: {named}")
    names, hidden = name_runs(runs)
    base = _baseline(runs, names, baseline)
    categories = list(dict.fromkeys(s.category for run in runs for s in run.samples))
    mismatched = max(paired_difference(run.samples, runs[base].samples, "tau_macro").mismatched for run in runs)

    headers = ["run", "n", "tau macro", "Δ tau", "tau ratio", "speedup", "lossless", "also"]
    notes = [
        *(f"{name}: {caveat}" for name, run in zip(names, runs, strict=True) for caveat in footer.caveats(run)),
        *_warnings(runs, hidden, mismatched),
        footer.setup(runs[base].config),
        *dict.fromkeys(footer.machine(run.environment) for run in runs),
        f"Δ tau and tau ratio: against {names[base]}, paired by prompt",
        *footer.definitions("tau_macro", "speedup"),
    ]
    rows = [_row(name, run, runs[base], "all") for name, run in zip(names, runs, strict=True)]
    tables = [Table("comparison", headers, rows, notes)]
    everything = list(rows)
    if len(categories) > 1:
        tables.append(_by_category(names, runs, categories))
        everything += [_row(n, r, runs[base], c) for n, r in zip(names, runs, strict=True) for c in categories]

    if output is not None:
        write_atomic(output / "comparison.md", "\n".join(table.markdown() for table in tables))
        write_atomic(output / "comparison.csv", Table("", headers, everything).csv())
    if console is not None:
        for table in tables:
            table.print(console)
    return tables


def _row(name: str, run: Run, base: Run, category: str) -> list[Cell]:
    samples = _of(run.samples, category)
    reference = None if run is base else _of(base.samples, category)
    numbers = counts(samples)
    speedup = interval("speedup", estimate(samples, "speedup").to_dict(), "×")
    micro = interval("tau_micro", estimate(samples, "tau_micro").to_dict())
    # Not shown, for it compares two machines' moods as well; in the CSV for whoever wants it.
    speedup_ratio = _paired("speedup_ratio", samples, reference, "speedup", as_ratio=True)
    return [
        _name(name, run, category),
        Cell(str(numbers["n"]), {"n": numbers["n"], "turns": numbers["turns"]}),
        interval("tau_macro", estimate(samples, "tau_macro").to_dict()),
        _paired("tau_difference", samples, reference, "tau_macro", as_ratio=False),
        _paired("tau_ratio", samples, reference, "tau_macro", as_ratio=True),
        replace(speedup, values={**speedup.values, **speedup_ratio.values, **micro.values}),
        lossless(numbers),
        also(numbers),
    ]


def _name(name: str, run: Run, category: str) -> Cell:
    """The run's name, with its state where that is not DONE."""
    shown = name if run.state == "DONE" else f"{name} ({run.state})"
    values = {"run": name, "folder": run.path.name, "state": run.state, "category": category}
    return Cell(shown.replace(" ", "\n"), values, shown)


def _paired(
    key: str, samples: Sequence[SampleRecord], reference: Sequence[SampleRecord] | None, metric: str, as_ratio: bool
) -> Cell:
    """Difference or ratio against the baseline; says how many prompts both runs share where it is not all of them."""
    if reference is None:
        return Cell("baseline")
    paired = paired_difference(samples, reference, metric, as_ratio=as_ratio)
    cell = interval(key, paired.estimate.to_dict(), sign=not as_ratio)
    values = {**cell.values, f"{key}_n": paired.n, f"{key}_separable": paired.separable}
    if paired.n in (0, counts(samples)["n"]):
        return replace(cell, values=values)
    shared = f"n = {paired.n}"
    return Cell(f"{cell.text}\n{shared}", values, f"{cell.markdown or cell.text}, {shared}")


def _by_category(names: Sequence[str], runs: Sequence[Run], categories: Sequence[str]) -> Table:
    def cell(run: Run, category: str) -> Cell:
        samples = _of(run.samples, category)
        shown = interval("tau_macro", estimate(samples, "tau_macro").to_dict())
        n = f"n = {counts(samples)['n']}"
        return Cell(f"{shown.text}\n{n}", shown.values, f"{shown.markdown or shown.text}, {n}")

    named = zip(names, runs, strict=True)
    rows = [[_name(name, run, ""), *(cell(run, c) for c in categories)] for name, run in named]
    return Table("tau macro by category", ["run", *categories], rows, [f"tau macro: {METRICS['tau_macro'].definition}"])


def _warnings(runs: Sequence[Run], hidden: Sequence[str], mismatched: int) -> list[str]:
    notes = []
    if len({footer.machine(run.environment) for run in runs}) > 1:
        notes.append("not all runs are from the same machine, threads or dtype: do not compare their speedups")
    if hidden:
        notes.append(f"settings that differ besides those in the names: {', '.join(hidden)}")
    if mismatched:
        notes.append(
            f"up to {mismatched} turns share an id with the baseline but not the prompt; differences leave them out"
        )
    return notes


def _of(samples: Sequence[SampleRecord], category: str) -> list[SampleRecord]:
    return [s for s in samples if category in ("all", s.category)]


def _baseline(runs: Sequence[Run], names: Sequence[str], wanted: str | None) -> int:
    if wanted is None:
        return next((i for i, run in enumerate(runs) if method_of(run) != "ar"), 0)
    for keys in (names, [method_of(run) for run in runs], [run.path.name for run in runs]):
        found = [i for i, key in enumerate(keys) if key == wanted]
        if len(found) == 1:
            return found[0]
    raise RecordError(f"baseline {wanted!r} does not name one run; names: {'; '.join(names)}")


def _order(run: Run) -> tuple[int, str, list[tuple[int, float, str]]]:
    """Plain decoding first, then the published order of methods, then settings in natural order."""
    method = method_of(run)
    place = METHODS.index(method) if method in METHODS else len(METHODS)
    tree = footer.setting(run.config, "tree") or {}
    pieces = re.split(r"(-?\d+(?:\.\d+)?)", " ".join(f"{key}={value}" for key, value in sorted(tree.items())))
    natural = [(1, float(p), "") if i % 2 else (0, 0.0, p) for i, p in enumerate(pieces)]
    return place, method, natural
