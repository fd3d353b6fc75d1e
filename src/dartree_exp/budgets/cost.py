"""The time of a verification on this machine, by its number of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float64
from torch import Tensor


class CostCurve:
    """Seconds by rows, as measured in the warm-up; linear between the measured points, and beyond
    the last one with the last slope.
    """

    def __init__(self, seconds_by_rows: Mapping[int, float]) -> None:
        """Raises ValueError for an empty curve."""
        if not seconds_by_rows:
            raise ValueError("a cost curve needs at least one measured point")
        self._points = sorted(seconds_by_rows.items())

    @property
    def points(self) -> list[tuple[int, float]]:
        """(rows, seconds), ascending."""
        return list(self._points)

    def __call__(self, rows: int) -> float:
        points = self._points
        if len(points) == 1 or rows <= points[0][0]:
            return points[0][1]
        right = min(max(bisect_left(points, (rows,)), 1), len(points) - 1)
        (low, before), (high, after) = points[right - 1], points[right]
        return before + (after - before) * (rows - low) / (high - low)


class RoundCosts:
    """Seconds of a whole round by the number of its nodes, as a tensor made once."""

    def __init__(self, cost: Callable[[int], float], overhead: float) -> None:
        self._cost, self._overhead = cost, overhead
        self._table: Float64[Tensor, " n"] = torch.empty(0, dtype=torch.float64)

    def of(self, nodes: int) -> float:
        """Of a round with this number of drafted nodes."""
        return self._overhead + self._cost(nodes + 1)

    def upto(self, nodes: int, device: torch.device) -> Float64[Tensor, " n"]:
        """Of rounds with 0..nodes drafted nodes: the root's row and one for each node."""
        if len(self._table) <= nodes or self._table.device != device:
            seconds = [self.of(n) for n in range(nodes + 1)]
            self._table = torch.tensor(seconds, dtype=torch.float64, device=device)
        return self._table[: nodes + 1]
