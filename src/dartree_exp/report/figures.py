"""The plots that can be made of given runs, and their data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dartree_exp.config.methods import chooses_lengths
from dartree_exp.config.unread import unread
from dartree_exp.console.printable import printable_line
from dartree_exp.metrics.clock import STAGES
from dartree_exp.metrics.measures import prompt_units, stage_milliseconds
from dartree_exp.metrics.stats import Estimate, estimate
from dartree_exp.records import RoundRecord, Run, SampleRecord
from dartree_exp.report import caveats, claims, footer
from dartree_exp.report.labels import Group, compared, group_runs, name_runs, name_settings
from dartree_exp.report.shares import branch_estimates, length_estimates, survival_estimates
from dartree_exp.report.tables import method_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOBS = {
    "tree.budget": "budget B, nodes verified per round",
    "tree.width": "width W, nodes kept per depth",
    "tree.beta": "depth bonus β",
    "tree.candidates": "candidates K per depth",
}
NUMBERS = {"tau_macro": "tau macro, tokens per round", "speedup": "speedup, × plain decoding"}
LONGEST_NAME = 60  # of a line that is named after its settings alone
MOST_SERIES = 8  # lines per plot; if there are more runs, those of a method are pooled


@dataclass(frozen=True)
class Plot:
    """A figure with its file name, title and caption; `draw` makes it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


def plots(runs: Sequence[Run]) -> list[Plot]:
    """All plots that can be made of the runs, group by group."""
    found: list[Plot] = []
    for index, group in enumerate(group_runs(runs)):
        suffix = f"_{index}" if group.title else ""
        made = _knob_plots(group), _grids(group), _round_plots(group), _length_plots(group)
        for plot in chain.from_iterable(made):
            title = f"{plot.title}: {group.title}" if group.title else plot.title
            found.append(Plot(plot.name + suffix, title, plot.caption, plot.draw))
    return found


def _knob_plots(group: Group) -> Iterator[Plot]:
    for knob, label in KNOBS.items():
        series = _series(group, knob)
        if not series:
            continue
        for metric, number in NUMBERS.items():
            lines = {
                name: [(x, estimate(run.samples, metric)) for x, run in points]
                for name, points in series.items()
            }
            if all(e.value is None for points in lines.values() for _, e in points):
                continue
            yield Plot(
                f"{metric}_{knob.split('.')[1]}",
                f"{number.split(',')[0]} against {knob.split('.')[1]}",
                f"bands: {footer.INTERVAL}; all finished values are drawn"
                f"{_times(group.runs, metric)}",
                _curves(lines, label, number),
            )


def _times(runs: Sequence[Run], metric: str) -> str:
    """The caption's note on invalid times, if the metric is a time."""
    problems = dict.fromkeys(
        caveats.load_problem(run.environment) for run in runs if metric in claims.TIMES
    )
    return "".join(f"; {problem}" for problem in problems if problem)


def _curves(
    lines: dict[str, list[tuple[float, Estimate]]], label: str, number: str
) -> Callable[[], Figure]:
    def draw() -> Figure:
        from dartree_exp.report.plots.curves import Curve, curves

        return curves(
            [Curve(n, [x for x, _ in p], [e for _, e in p]) for n, p in lines.items()],
            label,
            number,
        )

    return draw


def _series(group: Group, knob: str) -> dict[str, list[tuple[float, Run]]]:
    """Name -> (value of the knob, run), for runs that differ in the knob alone; at least two
    values.
    """
    families: dict[tuple[tuple[str, str], ...], list[tuple[float, Run]]] = defaultdict(list)
    for run in group.runs:
        value = footer.setting(run.config, knob)
        if isinstance(value, int | float) and method_of(run) != "ar" and run.state != "FAILED":
            rest = {key: text for key, text in compared(run.config).items() if key != knob}
            families[(("method", method_of(run)), *sorted(rest.items()))].append(
                (float(value), run)
            )
    chosen = {key: points for key, points in families.items() if len({x for x, _ in points}) > 1}
    names, _ = name_settings([key[0][1] for key in chosen], [dict(key[1:]) for key in chosen])
    return {
        n: sorted(points, key=lambda point: point[0])
        for n, points in zip(names, chosen.values(), strict=True)
    }


def _grids(group: Group) -> Iterator[Plot]:
    """Heat maps over width and budget, if both were varied together."""
    cells: dict[tuple[tuple[str, str], ...], dict[tuple[float, float], Run]] = defaultdict(dict)
    for run in group.runs:
        width, budget = (footer.setting(run.config, f"tree.{name}") for name in ("width", "budget"))
        if run.state == "FAILED" or "tree.width" in unread(run.config):
            continue
        if width is not None and isinstance(budget, int):
            rest = {
                k: v
                for k, v in compared(run.config).items()
                if k not in ("tree.width", "tree.budget")
            }
            cells[(("method", method_of(run)), *sorted(rest.items()))][
                float(width), float(budget)
            ] = run
    full = {key: grid for key, grid in cells.items() if _is_grid(grid)}
    names, _ = name_settings([key[0][1] for key in full], [dict(key[1:]) for key in full])
    for index, (name, grid) in enumerate(zip(names, full.values(), strict=True)):
        for metric, number in NUMBERS.items():
            yield Plot(
                f"grid_{metric}_{index}",
                f"{number.split(',')[0]} over width and budget",
                f"{name}; intervals are in the table{_times(list(grid.values()), metric)}",
                _heat_map(grid, metric, number),
            )


def _is_grid(grid: dict[tuple[float, float], Run]) -> bool:
    widths, budgets = ({key[i] for key in grid} for i in (0, 1))
    # Excludes two curves that cross in one point, one over widths and one over budgets.
    return len(widths) > 1 and len(budgets) > 1 and 3 * len(grid) >= 2 * len(widths) * len(budgets)


def _heat_map(
    grid: dict[tuple[float, float], Run], metric: str, number: str
) -> Callable[[], Figure]:
    def draw() -> Figure:
        from dartree_exp.report.plots.curves import heat_map

        widths, budgets = (sorted({key[i] for key in grid}) for i in (0, 1))
        values = np.full((len(widths), len(budgets)), np.nan)
        for (width, budget), run in grid.items():
            value = estimate(run.samples, metric).value
            values[widths.index(width), budgets.index(budget)] = np.nan if value is None else value
        rows, columns = ([f"{v:g}" for v in axis] for axis in (widths, budgets))
        return heat_map(values, rows, columns, ("width W", "budget B", number))

    return draw


def _round_plots(group: Group) -> Iterator[Plot]:
    drafting = [
        run for run in group.runs if any(s.rounds for s in run.samples) and method_of(run) != "ar"
    ]
    if not drafting:
        return
    samples, pooled = _per_line(drafting)
    survival = {name: survival_estimates(rows) for name, rows in samples.items()}
    yield Plot(
        "survival",
        "Acceptance survival",
        f"share of rounds that advanced at least d tokens, bonus token included{pooled}; bands: "
        f"{footer.INTERVAL}",
        lambda: _rounds().survival_curves(survival),
    )
    names, _ = name_runs(drafting)
    stages = {name: _stage_times(run.samples) for name, run in zip(names, drafting, strict=True)}
    exact = all(not caveats.unsynchronised(run) for run in drafting)
    yield Plot(
        "stages",
        "Where a round's time goes",
        f"mean over all rounds{_times(drafting, 'ms_per_round')}"
        + ("" if exact else "; stages were not synchronised with the device and include queuing"),
        lambda: _rounds().stage_bars(stages),
    )
    rounds: dict[str, list[RoundRecord]] = defaultdict(list)
    for name, run in zip(_line_names(drafting), drafting, strict=True):
        rounds[name] += run.rounds
    units = prompt_units(sample for run in drafting for sample in run.samples)
    branching = {
        name: shares for name, r in rounds.items() if len(shares := branch_estimates(r, units)) > 1
    }
    if branching:
        yield Plot(
            "branches",
            "Acceptance by branch rank",
            "accepted / offered nodes by rank among siblings; a node is offered if its parent was "
            f"accepted{pooled}; intervals: {footer.INTERVAL}",
            lambda: _rounds().branch_bars(branching),
        )
    places = {
        n: Counter(rank for x in r for rank in x.accepted_ranks or () if rank >= 0)
        for n, r in rounds.items()
    }
    places = {name: counts for name, counts in places.items() if counts}
    if places:
        yield Plot(
            "candidates",
            "Rank of the accepted tokens",
            "accepted drafts by rank among their depth's candidates, in the drafter's base order"
            f"{pooled}",
            lambda: _rounds().candidate_curves(places),
        )


def _length_plots(group: Group) -> Iterator[Plot]:
    """For each method with a budget policy: what that chose by the drafter's confidence."""
    methods: dict[str, list[Run]] = defaultdict(list)
    for run in group.runs:
        if chooses_lengths(run.config) and run.trees:
            methods[method_of(run)].append(run)
    for index, (method, runs) in enumerate(methods.items()):
        units = prompt_units(sample for run in runs for sample in run.samples)
        names = [name.removeprefix(method).strip() or method for name in name_runs(runs)[0]]
        lines = {
            name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…": points
            for name, run in zip(names, runs, strict=True)
            if (points := length_estimates(run.trees, units))
        }
        if lines:
            yield Plot(
                f"lengths_{index}",
                f"Length against confidence, {printable_line(method)}",
                "drafts verified per round, by the sum of the path probabilities of all drafts "
                "that were built, rounded; rounds whose trees are recorded; bands: "
                f"{footer.INTERVAL}",
                partial(_length_curves, lines),
            )


def _length_curves(lines: dict[str, list[tuple[int, Estimate]]]) -> Figure:
    figure: Figure = _rounds().length_curves(lines)
    return figure


def _rounds():
    from dartree_exp.report.plots import rounds

    return rounds


def _line_names(runs: Sequence[Run]) -> list[str]:
    """One name per run, or one per method if there would be too many lines."""
    return (
        name_runs(runs)[0]
        if len(runs) <= MOST_SERIES
        else [printable_line(method_of(run)) for run in runs]
    )


def _per_line(runs: Sequence[Run]) -> tuple[dict[str, list[SampleRecord]], str]:
    samples: dict[str, list[SampleRecord]] = defaultdict(list)
    for name, run in zip(_line_names(runs), runs, strict=True):
        samples[name] += run.samples
    return dict(samples), "" if len(samples) == len(runs) else "; the runs of a method are pooled"


def _stage_times(samples: Sequence[SampleRecord]) -> dict[str, float]:
    return {stage: estimate(samples, stage_milliseconds(stage)).value or 0.0 for stage in STAGES}
