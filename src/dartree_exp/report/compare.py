"""The comparison of several runs: their numbers, and differences from a baseline, paired by prompt.

A table compares runs of one target, one set of prompts and one decoding distribution
(`labels.Group`); a sweep over benchmarks or temperatures gets a table for each, and an overview of
methods against settings like those in the papers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dartree_exp.config.methods import known_methods
from dartree_exp.metrics.measures import counts
from dartree_exp.metrics.stats import estimate, paired_difference
from dartree_exp.records import RecordError, Run, SampleRecord
from dartree_exp.records.files import write_atomic
from dartree_exp.report import caveats, claims, footer, verdicts
from dartree_exp.report.baseline import baselines
from dartree_exp.report.cells import name_cell, of_category, paired_cell, title
from dartree_exp.report.labels import Group, group_runs
from dartree_exp.report.overview import by_category, overview
from dartree_exp.report.table import Cell, Table, interval
from dartree_exp.report.tables import also, method_of

HEADERS = (
    "run", "n", "tau macro", "Δ tau", "tau ratio", "verified\nper round", "ms per round", "speedup",
    "lossless", "also",
)  # fmt: skip
_TAU, _SPEEDUP = HEADERS.index("tau macro"), HEADERS.index("speedup")


def comparison(
    folders: Iterable[str | Path | Run],
    console: Console | None = None,
    baseline: str | None = None,
    output: Path | None = None,
    write: Callable[[Path, str], object] = write_atomic,
) -> list[Table]:
    """Compare runs: a table per group, and tau by category if there are several; before them an
    overview if there are several groups.

    Args:
        folders: run folders, in any order.
        console: print the tables there.
        baseline: the run to compare with, by its name in the table, its method or its folder's
            name; None: the first that is not plain decoding.
        output: folder for comparison.md and comparison.csv (with every category).
        write: writes text to a file.

    Raises:
        RecordError: a bad folder, lossy runs beside exact ones, or a baseline that does not name
            one run.
    """
    runs = in_order(folders)
    refuse_lossy_beside_exact(runs)
    groups = group_runs(runs)
    bases = baselines(groups, baseline)
    tables = [overview(groups)] if len(groups) > 1 else []
    everything: list[Sequence[Cell]] = []
    for group, base in zip(groups, bases, strict=True):
        categories = _categories(group)
        tables.append(_overall(group, base))
        everything += [_settled(group, row) for row in tables[-1].rows]
        if len(categories) > 1:
            tables.append(by_category(group, categories))
            for category in categories:
                everything += [_settled(group, row) for row in _rows(group, base, category)]

    if console is not None:
        for table in tables:
            table.print(console)
    if output is not None:
        write(output / "comparison.md", "\n".join(table.markdown() for table in tables))
        write(output / "comparison.csv", Table("", HEADERS, everything).csv())
    return tables


def in_order(folders: Iterable[str | Path | Run]) -> list[Run]:
    """Plain decoding first, then the published order of methods, then settings in natural order."""
    return sorted((f if isinstance(f, Run) else Run(Path(f)) for f in folders), key=_order)


def refuse_lossy_beside_exact(runs: Sequence[Run]) -> None:
    """Raise RecordError if some runs, but not all, have a lossy verifier."""
    lossy = [run for run in runs if any(not sample.exact for sample in run.samples)]
    if lossy and len(lossy) < len(runs):
        named = ", ".join(str(run.path) for run in lossy)
        raise RecordError(
            f"lossy runs cannot be compared with exact ones; report these separately: {named}"
        )


def _overall(group: Group, base: int | None) -> Table:
    reference = [] if base is None else group.runs[base].samples
    mismatched = max(
        paired_difference(run.samples, reference, "tau_macro").mismatched for run in group.runs
    )
    against = (
        "no baseline: all runs failed"
        if base is None
        else f"against {group.names[base]}, paired by prompt"
    )
    notes = [
        *caveats.of_all(group.runs, group.names),
        *_warnings(group, mismatched),
        *footer.stamp(group.runs),
        f"Δ tau and tau ratio: {against}",
        *claims.notes(group.runs),
        *footer.definitions("tau_macro", "verified_per_round", "ms_per_round", "speedup"),
    ]
    rows = _rows(group, base, "all")
    return Table(
        title("comparison", group),
        HEADERS,
        rows,
        notes,
        frozenset(),
        *verdicts.lead(group.runs, group.names),
    )


def _rows(group: Group, base: int | None, category: str) -> list[list[Cell]]:
    """A row per run."""
    samples = [of_category(run.samples, category) for run in group.runs]
    reference = [] if base is None else samples[base]
    measure = [] if base is None else [group.runs[base]]
    rows = [
        _row(
            name,
            run,
            rows,
            None if i == base else reference,
            category,
            claims.comparable([run, *measure], "speedup"),
            time,
        )
        for i, (name, run, rows, time) in enumerate(
            zip(
                group.names,
                group.runs,
                samples,
                claims.round_times(group.runs, samples),
                strict=True,
            )
        )
    ]
    claims.mark_best(rows, _TAU, group.runs, samples, "tau_macro")
    claims.mark_best(rows, _SPEEDUP, group.runs, samples, "speedup")
    return rows


def _row(
    name: str,
    run: Run,
    samples: Sequence[SampleRecord],
    reference: Sequence[SampleRecord] | None,
    category: str,
    fair: bool,
    round_time: Cell,
) -> list[Cell]:
    numbers = counts(samples)
    speedup = interval("speedup", estimate(samples, "speedup").to_dict(), "×")
    micro = interval("tau_micro", estimate(samples, "tau_micro").to_dict())
    # In the CSV only: it also compares how fast the machine was in the two runs.
    speedup_ratio = paired_cell(
        "speedup_ratio", samples, reference, "speedup", as_ratio=True, comparable=fair
    )
    return [
        name_cell(name, run, category),
        Cell(str(numbers["n"]), {"n": numbers["n"], "turns": numbers["turns"]}),
        interval("tau_macro", estimate(samples, "tau_macro").to_dict()),
        paired_cell("tau_difference", samples, reference, "tau_macro", as_ratio=False),
        paired_cell("tau_ratio", samples, reference, "tau_macro", as_ratio=True),
        interval("verified_per_round", estimate(samples, "verified_per_round").to_dict()),
        round_time,
        caveats.timed(
            run, replace(speedup, values={**speedup.values, **speedup_ratio.values, **micro.values})
        ),
        verdicts.cell(samples, verdicts.proof_of(run) if category == "all" else None),
        also(numbers),
    ]


def _settled(group: Group, row: Sequence[Cell]) -> Sequence[Cell]:
    """The row with a CSV column of its group's settings, if there are several groups."""
    if not group.title:
        return row
    return [replace(row[0], values={**row[0].values, "settings": group.title}), *row[1:]]


def _warnings(group: Group, mismatched: int) -> list[str]:
    notes = []
    if group.hidden:
        notes.append(f"settings that differ besides those in the names: {', '.join(group.hidden)}")
    if mismatched:
        notes.append(
            f"up to {mismatched} turns share an id with the baseline but not the prompt; "
            "differences leave them out"
        )
    return notes


def _categories(group: Group) -> list[str]:
    return list(dict.fromkeys(s.category for run in group.runs for s in run.samples))


def _order(run: Run) -> tuple[int, str, list[tuple[int, float, str]]]:
    method = method_of(run)
    known = known_methods()
    place = known.index(method) if method in known else len(known)
    tree = footer.setting(run.config, "tree") or {}
    pieces = re.split(
        r"(-?\d+(?:\.\d+)?)", " ".join(f"{key}={value}" for key, value in sorted(tree.items()))
    )
    natural = [(1, float(p), "") if i % 2 else (0, 0.0, p) for i, p in enumerate(pieces)]
    return place, method, natural
