"""The style of all plots, with colour-blind-safe colours, and their SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito (2008), without yellow and black, which cannot be seen on a light or dark page.
# Markers and dashes change with the colour, so curves do not differ in colour alone.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
INK, SOFT, RULE = "#1f2328", "#656d76", "#d1d5da"
SHADES = "cividis"  # perceptually even, also for the colour-blind
WIDTH, HEIGHT = 5.6, 3.4  # inches

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "text.parse_math": False,  # a name may contain dollar signs
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "dartree_exp",
}
# Colours that a page replaces by its own for light and dark mode.
_THEMED = {
    INK: "ink",
    SOFT: "soft",
    RULE: "rule",
    **{colour: f"series-{i}" for i, colour in enumerate(COLOURS)},
}


@contextmanager
def canvas(
    columns: int = 1, width: float = WIDTH, height: float = HEIGHT
) -> Iterator[tuple[Figure, list[Any]]]:
    """A styled figure and its axes, side by side."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, list(figure.subplots(1, columns, squeeze=False)[0])


def look(index: int) -> dict[str, Any]:
    """Colour, marker and dash of the series `index`."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index // len(COLOURS) % len(DASHES)],
    }


def legend(figure: Figure, axes: Any, most: int = 1) -> None:
    """A legend below the plot if there are more than `most` series; makes the figure taller."""
    handles, names = axes.get_legend_handles_labels()
    if len(names) > most:
        columns = 1 if max(map(len, names)) > 34 else 2
        figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(names) // columns))
        figure.legend(handles, names, loc="outside lower left", ncols=columns)


def svg(figure: Figure, themed: bool = False) -> str:
    """The figure as an SVG element, equal for equal data.

    themed: colours become CSS variables of the page around it (`--ink`, `--series-0`, ...).
    """
    out = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    if themed:
        for colour, name in _THEMED.items():
            text = re.sub(rf"\b(fill|stroke): {colour}\b", rf"\1: var(--{name}, {colour})", text)
        text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
        text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    return text
