"""Plots of rounds: acceptance survival, stage times, accepted branches and candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from dartree_exp.metrics.clock import STAGES
from dartree_exp.metrics.stats import Estimate
from dartree_exp.report.plots.style import COLOURS, HEIGHT, SOFT, WIDTH, canvas, legend, look


def survival_curves(series: Mapping[str, Sequence[Estimate]]) -> Figure:
    """Pr(L >= d) against d for each method: the share of rounds that advanced at least d tokens,
    bonus token included.
    """
    with canvas() as (figure, [axes]):
        for index, (name, points) in enumerate(series.items()):
            depths = np.arange(1, len(points) + 1)
            style = look(index)
            axes.plot(depths, [p.value for p in points], label=name, **style)
            low, high = ([np.nan if v is None else v for v in ends] for ends in _ends(points))
            axes.fill_between(depths, low, high, color=style["color"], alpha=0.13, linewidth=0)
        axes.set_ylim(0, 1.02)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("d, tokens advanced")
        axes.set_ylabel("Pr(L ≥ d)")
        legend(figure, axes, most=0)
    return figure


def stage_bars(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Milliseconds per round by stage, stacked, one bar per run with the sum at its end."""
    with canvas(width=WIDTH * 1.1, height=max(HEIGHT * 0.85, 0.36 * len(rows) + 1.3)) as (
        figure,
        [axes],
    ):
        names = list(rows)
        left = np.zeros(len(names))
        for index, stage in enumerate(STAGES):
            widths = np.array([rows[name].get(stage, 0.0) for name in names])
            colour = COLOURS[index % len(COLOURS)]
            axes.barh(
                names, widths, left=left, height=0.55, label=stage, color=colour, edgecolor="none"
            )
            left += widths
        for place, total in enumerate(left):
            axes.annotate(
                f"{total:.1f}",
                (total, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.1)
        axes.set_xlabel("milliseconds per round")
        figure.legend(loc="outside upper left", ncols=len(STAGES))
    return figure


def branch_bars(shares: Mapping[str, Sequence[Estimate]]) -> Figure:
    """Share of offered nodes that were accepted, by rank among their siblings, for each method."""
    with canvas() as (figure, [axes]):
        _grouped(axes, shares)
        axes.set_xlabel("rank among siblings (0: the drafter's first choice)")
        axes.set_ylabel("accepted / offered")
        legend(figure, axes, most=0)
    return figure


def candidate_curves(places: Mapping[str, Mapping[int, int]]) -> Figure:
    """Cumulative share of accepted drafts by rank among their depth's candidates, for each
    method.
    """
    with canvas() as (figure, [axes]):
        for index, (name, counts) in enumerate(places.items()):
            ranks = np.array(sorted(counts))
            shares = np.cumsum([counts[rank] for rank in ranks]) / sum(counts.values())
            style = look(index)
            axes.step(
                ranks + 1,
                shares,
                where="post",
                label=name,
                color=style["color"],
                linestyle=style["linestyle"],
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylim(top=1.01)
        axes.set_xlabel("candidates considered per depth")
        axes.set_ylabel("accepted drafts among them")
        legend(figure, axes, most=0)
    return figure


def length_curves(series: Mapping[str, Sequence[tuple[int, Estimate]]]) -> Figure:
    """Drafts verified per round against the drafts that the drafter expected to be accepted, a line
    per run; below the dotted line more is expected than is verified.
    """
    with canvas() as (figure, [axes]):
        for index, (name, points) in enumerate(series.items()):
            at, style = [x for x, _ in points], look(index)
            estimates = [estimate for _, estimate in points]
            axes.plot(at, [e.value for e in estimates], label=name, **style)
            low, high = ([np.nan if v is None else v for v in ends] for ends in _ends(estimates))
            axes.fill_between(at, low, high, color=style["color"], alpha=0.13, linewidth=0)
        longest = max(x for points in series.values() for x, _ in points)
        axes.plot([0, longest], [0, longest], color=SOFT, linestyle=":", linewidth=1)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("drafts expected to be accepted, by the drafter's own probabilities")
        axes.set_ylabel("drafts verified")
        legend(figure, axes, most=0)
    return figure


def _grouped(axes, series: Mapping[str, Sequence[Estimate]]) -> None:
    width = 0.8 / len(series)
    for index, (name, points) in enumerate(series.items()):
        at = np.arange(len(points)) + (index - (len(series) - 1) / 2) * width
        values = np.array([np.nan if p.value is None else p.value for p in points])
        low, high = (np.array([np.nan if v is None else v for v in ends]) for ends in _ends(points))
        errors = np.nan_to_num(np.array([values - low, high - values])).clip(0)
        colour = COLOURS[index % len(COLOURS)]
        axes.bar(
            at,
            values,
            width * 0.92,
            label=name,
            color=colour,
        )
        axes.errorbar(at, values, errors, fmt="none", ecolor="#656d76", elinewidth=1)
    axes.set_xticks(range(max(len(points) for points in series.values())))
    axes.grid(axis="x", visible=False)


def _ends(points: Sequence[Estimate]) -> tuple[list[float | None], list[float | None]]:
    return [p.low for p in points], [p.high for p in points]
