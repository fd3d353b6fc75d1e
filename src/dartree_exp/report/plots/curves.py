"""A number against a setting, with bands; and against two settings, as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from dartree_exp.metrics.stats import Estimate
from dartree_exp.report.plots.style import HEIGHT, SHADES, SOFT, WIDTH, canvas, legend, look


@dataclass(frozen=True)
class Curve:
    """One series: ascending values of the setting, and the estimate at each."""

    name: str
    x: Sequence[float]
    y: Sequence[Estimate]


def curves(series: Sequence[Curve], setting: str, number: str) -> Figure:
    """Lines with shaded intervals and a tick for every value of the setting."""
    with canvas() as (figure, [axes]):
        ticks = sorted({x for curve in series for x in curve.x})
        if min(ticks) > 0 and max(ticks) / min(ticks) >= 8:
            axes.set_xscale("log", base=2)
        for index, curve in enumerate(series):
            style = look(index)
            axes.plot(curve.x, [_or_nan(e.value) for e in curve.y], label=curve.name, **style)
            low, high = (
                [_or_nan(end) for end in ends]
                for ends in zip(*((e.low, e.high) for e in curve.y), strict=True)
            )
            axes.fill_between(curve.x, low, high, color=style["color"], alpha=0.13, linewidth=0)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(setting)
        axes.set_ylabel(number)
        legend(figure, axes)
    return figure


def heat_map(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], names: tuple[str, str, str]
) -> Figure:
    """A heat map with the number in each cell.

    Args:
        values: float [R, C], NaN for cells that were not run. rows, columns: labels.
        names: of the rows' setting, the columns' setting and the number.
    """
    with canvas(width=WIDTH, height=max(HEIGHT * 0.6, 0.45 * len(rows) + 1.2)) as (figure, [axes]):
        axes.grid(False)
        image = axes.imshow(values, cmap=SHADES, aspect="auto", origin="lower")
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = "#ffffff" if value <= middle else "#000000"
                axes.text(
                    column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9
                )
            else:
                axes.text(column, row, "–", ha="center", va="center", color=SOFT)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_ylabel(names[0])
        axes.set_xlabel(names[1])
        bar = figure.colorbar(image, ax=axes, label=names[2])
        bar.outline.set_visible(False)  # type: ignore[operator]
    return figure


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
