"""Cells shared by several tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dartree_exp.metrics.measures import counts
from dartree_exp.metrics.stats import paired_difference
from dartree_exp.records import Run, SampleRecord
from dartree_exp.report import caveats
from dartree_exp.report.labels import Group
from dartree_exp.report.table import Cell, interval, lines


def name_cell(name: str, run: Run, category: str) -> Cell:
    """The run's name, with its state if that is not DONE."""
    unlike = "incomplete" if caveats.is_incomplete(run) else run.state
    shown = name if unlike == "DONE" else f"{name} ({unlike})"
    values = {"run": name, "folder": run.path.name, "state": run.state, "category": category}
    return Cell(shown.replace(" ", "\n"), values, shown)


def paired_cell(
    key: str,
    samples: Sequence[SampleRecord],
    reference: Sequence[SampleRecord] | None,
    metric: str,
    as_ratio: bool,
    comparable: bool = True,
) -> Cell:
    """Difference or ratio against the baseline; with the number of shared prompts if some are not
    shared.
    """
    if reference is None:
        return Cell("baseline")
    paired = paired_difference(samples, reference, metric, as_ratio=as_ratio, comparable=comparable)
    cell = interval(key, paired.estimate.to_dict(), sign=not as_ratio)
    values = {**cell.values, f"{key}_n": paired.n, f"{key}_separable": paired.separable}
    if paired.n in (0, counts(samples)["n"]):
        return replace(cell, values=values)
    return lines(replace(cell, values=values), f"n = {paired.n}")


def counted(cell: Cell, samples: Sequence[SampleRecord]) -> Cell:
    """The cell with n, and the number of outputs that loop or ended at the cap: both raise tau."""
    numbers = counts(samples)
    said = [f"n = {numbers['n']}"]
    said += [
        f"{numbers[key]} {word}"
        for key, word in (("degenerate", "looping"), ("capped", "capped"))
        if numbers[key]
    ]
    return lines(cell, *said)


def title(what: str, group: Group) -> str:
    """A table's title, with the title of its group."""
    return f"{what}: {group.title}" if group.title else what


def of_category(samples: Sequence[SampleRecord], category: str) -> list[SampleRecord]:
    """The samples of a category; all samples for "all"."""
    return [s for s in samples if category in ("all", s.category)]
