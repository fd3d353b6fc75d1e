"""Least squares under constraints: the convex, rising curve closest to measured costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nonnegative_least_squares(matrix: Array, wanted: Array) -> Array:
    """x >= 0 with the smallest |matrix x - wanted|, by Lawson and Hanson's active set (Solving
    Least Squares Problems, 1974, chapter 23). matrix: [n, k], of full column rank.
    """
    x, free = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    scale = np.abs(matrix.T @ wanted).max()
    for _ in range(3 * len(x)):
        gradient = matrix.T @ (wanted - matrix @ x)
        if free.all() or gradient[~free].max() <= 1e-12 * scale:
            break
        free[np.where(free, -np.inf, gradient).argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            if (trial[free] > 0).all():
                break
            wrong = free & (trial <= 0)
            x = x + (x[wrong] / (x[wrong] - trial[wrong])).min() * (trial - x)
            free &= x > 0
        x = trial
    return x


def convex_fit(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points (x, y), x ascending, with y moved to the closest values, in least squares, that
    rise and are convex in x.

    Every such curve is a constant, a slope and non-negative changes of slope at the inner points,
    so the fit is non-negative least squares; y is positive.
    """
    x, y = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
    kinks = np.maximum(x[:, None] - x[None, :-1], 0)  # the first one is the slope
    matrix = np.column_stack([np.ones_like(x), kinks])
    fitted = matrix @ nonnegative_least_squares(matrix, y)
    return [(rows, float(value)) for (rows, _), value in zip(points, fitted, strict=True)]
