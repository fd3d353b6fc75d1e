"""The effect of one choice: paired differences between runs that differ in one setting or group
alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from dartree_exp.metrics.stats import LEVEL, TOO_FEW
from dartree_exp.records import RecordError, Run
from dartree_exp.report import caveats, claims, footer, verdicts
from dartree_exp.report.cells import paired_cell, title
from dartree_exp.report.compare import in_order, refuse_lossy_beside_exact
from dartree_exp.report.labels import Group, compared, group_runs
from dartree_exp.report.table import Cell, Table
from dartree_exp.report.tables import method_of

HEADERS = ("run", "against", "n", "Δ tau", "tau ratio", "separable")


def swap_tables(runs: Sequence[Run], key: str) -> list[Table]:
    """Every pair of runs that differ in `key` alone, one table per group of comparable runs.

    key: a setting such as `tree.width`, or a group such as `drafter`, all of whose settings may
        differ.

    Raises:
        RecordError: the runs have no such setting, no two of them differ in it alone, or some are
            lossy and some exact.
    """
    refuse_lossy_beside_exact(runs)
    if not any(_belongs(setting, key) for run in runs for setting in compared(run.config)):
        raise RecordError(
            f"--swap {key}: no such setting in these runs; try drafter, tree, tree.width, "
            "tree.budget"
        )
    tables = [
        table for group in group_runs(in_order(runs)) if (table := _table(group, key)) is not None
    ]
    if not tables:
        raise RecordError(
            f"--swap {key}: no two of these runs differ in it alone (FAILED runs are left out)"
        )
    return tables


def _table(group: Group, key: str) -> Table | None:
    names = dict(zip([run.path for run in group.runs], group.names, strict=True))
    families: dict[tuple[tuple[str, str], ...], list[Run]] = defaultdict(list)
    for run in group.runs:
        if method_of(run) != "ar" and run.state != "FAILED":
            families[_others(run, key)].append(run)
    rows = [
        _row(names, before, after)
        for family in families.values()
        for before, after in combinations(family, 2)
        if compared(before.config) != compared(after.config)
    ]
    if not rows:
        return None
    judged = sum(row[-1].text != TOO_FEW for row in rows)
    failed = [
        name for name, run in zip(group.names, group.runs, strict=True) if run.state == "FAILED"
    ]
    notes = [
        *caveats.of_all(group.runs, group.names),
        *([f"FAILED runs are left out: {', '.join(failed)}"] if failed else []),
        f"Δ tau, tau ratio: difference and ratio of two runs that differ in {key} alone, paired by "
        "prompt; the higher tau first",
        f"separable: {claims.SEPARABLE}; of {judged} comparisons without a true difference about "
        f"{(1 - LEVEL) * judged:.1f} would be separable by chance",
        *footer.stamp(group.runs),
        *footer.definitions("tau_macro"),
    ]
    said = verdicts.lead(group.runs, group.names)
    return Table(title(f"swapping {key}", group), HEADERS, rows, notes, frozenset(), *said)


def _others(run: Run, key: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in compared(run.config).items() if not _belongs(k, key)))


def _belongs(setting: str, key: str) -> bool:
    return setting == key or setting.startswith(f"{key}.")


def _row(names: Mapping[Path, str], before: Run, after: Run) -> list[Cell]:
    difference = paired_cell(
        "tau_difference", after.samples, before.samples, "tau_macro", as_ratio=False
    )
    if (difference.values["tau_difference"] or 0.0) < 0:
        return _row(names, after, before)
    n, separable = (difference.values[f"tau_difference_{key}"] for key in ("n", "separable"))
    return [
        Cell(names[after.path], {"run": names[after.path]}),
        Cell(names[before.path], {"against": names[before.path]}),
        Cell(str(n), {"n": n}),
        difference,
        paired_cell("tau_ratio", after.samples, before.samples, "tau_macro", as_ratio=True),
        Cell(separable),
    ]
