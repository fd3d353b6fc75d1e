"""The time of a target forward on this machine, by its number of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping


class CostCurve:
    """Seconds by rows, as measured in the warm-up; linear between the measured points, and beyond
    the last one with the last slope.
    """

    def __init__(self, seconds_by_rows: Mapping[int, float]) -> None:
        """Raises ValueError for an empty curve."""
        if not seconds_by_rows:
            raise ValueError("a cost curve needs at least one measured point")
        self._points = sorted(seconds_by_rows.items())

    def __call__(self, rows: int) -> float:
        points = self._points
        if len(points) == 1 or rows <= points[0][0]:
            return points[0][1]
        right = min(max(bisect_left(points, (rows,)), 1), len(points) - 1)
        (low, before), (high, after) = points[right - 1], points[right]
        return before + (after - before) * (rows - low) / (high - low)
