"""Tau by category, and methods against settings."""

from __future__ import annotations

from collections.abc import Sequence

from dartree_exp.metrics.measures import spread
from dartree_exp.metrics.stats import estimate, spread_estimate
from dartree_exp.report import caveats, claims, footer, verdicts
from dartree_exp.report.cells import counted, name_cell, of_category, title
from dartree_exp.report.labels import Group, method_names
from dartree_exp.report.table import NONE, Cell, Table, interval


def by_category(group: Group, categories: Sequence[str]) -> Table:
    rows = [[name_cell(name, run, "")] for name, run in zip(group.names, group.runs, strict=True)]
    for column, category in enumerate(categories, start=1):
        samples = [of_category(run.samples, category) for run in group.runs]
        for row, chosen in zip(rows, samples, strict=True):
            row.append(
                counted(interval("tau_macro", estimate(chosen, "tau_macro").to_dict()), chosen)
            )
        claims.mark_best(rows, column, group.runs, samples, "tau_macro")
    over = spread(categories)
    for row, run in zip(rows, group.runs, strict=True):
        row.append(interval(over.name, spread_estimate(run.samples, categories).to_dict()))
    notes = [
        *footer.stamp(group.runs),
        claims.BEST,
        f"{over.name}: {over.definition}",
        *footer.definitions("tau_macro"),
    ]
    said = verdicts.lead(group.runs, group.names)
    headers = ["run", *categories, over.name]
    return Table(title("tau macro by category", group), headers, rows, notes, frozenset(), *said)


def overview(groups: Sequence[Group]) -> Table:
    """Methods against settings: tau and speedup of each, as the papers' main tables."""
    names = method_names([run for group in groups for run in group.runs])
    rows = {name: [Cell(name.replace(" ", "\n"), {"run": name}, name)] for name in names.values()}
    for column, group in enumerate(groups, start=1):
        for row in rows.values():
            row.append(Cell(NONE))
        for run in group.runs:
            tau, speedup = (estimate(run.samples, metric) for metric in ("tau_macro", "speedup"))
            shown = [
                f"{x.value:.2f}{unit}" if x.value is not None else NONE
                for x, unit in ((tau, ""), (speedup, "×"))
            ]
            values = {"tau_macro": tau.value, "speedup": speedup.value}
            cell = caveats.timed(run, Cell("\n".join(shown), values, " / ".join(shown)))
            rows[names[run.path]][column] = counted(cell, run.samples)
        marked = [rows[names[run.path]] for run in group.runs]
        claims.mark_best(
            marked, column, group.runs, [run.samples for run in group.runs], "tau_macro"
        )
    everyone = [run for group in groups for run in group.runs]
    notes = [
        *caveats.of_all(everyone, [names[run.path] for run in everyone]),
        "tau macro, then speedup; intervals and the rule for bold are in the tables below",
        *footer.stamp(everyone),
        *footer.definitions("tau_macro", "speedup"),
    ]
    headers = ["run", *(g.title.replace(" ", "\n") for g in groups)]
    runs = [(run, f"{names[run.path]}, {group.title}") for group in groups for run in group.runs]
    said = verdicts.lead([run for run, _ in runs], [name for _, name in runs])
    return Table("overview", headers, list(rows.values()), notes, frozenset(), *said)
