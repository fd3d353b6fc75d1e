"""How far confidences are from what happens, and temperatures that bring them closer (numpy only).

Rounds are rows, depths columns: logits float [R, D] of the confidence head, and how many drafts of
each round were accepted, int [R]. The survival of a round to depth k is predicted by the product of
its first k confidences and happens, or does not, as `accepted >= k`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BINS = 20  # DeepSpec's
DRAWS = 200  # of outcomes, for the noise of an ECE
# Log-spaced from 1/8 to 8; 1 is among them.
GRID: Array = np.exp2(np.linspace(-3, 3, 121))


def survival(logits: Array, temperatures: Array) -> Array:
    """Predicted probability [R, D] that a round's first 1..D drafts are all accepted."""
    return np.cumprod(_sigmoid(logits / temperatures), axis=1, dtype=np.float64)


def survived(accepted: NDArray[np.int64], depths: int) -> Array:
    """What happened, [R, D] of 0 and 1."""
    return (accepted[:, None] >= np.arange(1, depths + 1)).astype(np.float64)


def expected_calibration_error(predicted: Array, happened: Array, bins: int = BINS) -> float:
    """ECE of predictions [n] in 0..1 against outcomes [n]: |mean prediction - frequency| by
    equal-width bin, weighted.
    """
    counts, sums, hits = _by_bin(predicted, happened, bins)
    return float(np.abs(sums - hits).sum() / counts.sum())


def calibration_noise(predicted: Array, bins: int = BINS) -> float:
    """The ECE that these predictions [n] would show on average if they were perfectly calibrated.

    n outcomes cannot tell smaller errors from none; rounds of one answer depend on each other, so
    it is a lower bound.
    """
    rng = np.random.default_rng(0)
    errors = [
        expected_calibration_error(
            predicted, (rng.random(len(predicted)) < predicted).astype(np.float64), bins
        )
        for _ in range(DRAWS)
    ]
    return float(np.mean(errors))


def reliability(predicted: Array, happened: Array, bins: int = BINS) -> tuple[Array, Array, Array]:
    """(mean prediction, frequency, count) of the bins that are not empty: the points of a
    reliability diagram.
    """
    counts, sums, hits = _by_bin(predicted, happened, bins)
    used = counts > 0
    return sums[used] / counts[used], hits[used] / counts[used], counts[used]


def fit_temperatures(logits: Array, accepted: NDArray[np.int64], bins: int = BINS) -> Array:
    """Sequential Temperature Scaling (arXiv 2607.05147): one temperature a depth, [D], fitted from
    the left.

    Depth by depth a search over `GRID` takes the temperature with the least ECE of the survival to
    that depth, those before it being fixed; among equals the one nearest to 1.
    """
    rounds, depths = logits.shape
    happened = survived(accepted, depths)
    before = np.ones(rounds)
    fitted = np.ones(depths)
    candidates = sorted(GRID.tolist(), key=lambda t: (abs(np.log(t)), t))
    for depth in range(depths):
        survivals = [before * _sigmoid(logits[:, depth] / t) for t in candidates]
        errors = [expected_calibration_error(s, happened[:, depth], bins) for s in survivals]
        best = int(np.argmin(errors))
        fitted[depth], before = candidates[best], survivals[best]
    return fitted


def fit_platt(log_q: Array, happened: Array, steps: int = 50) -> tuple[float, float]:
    """(a, b) of the likeliest sigmoid(a logit(q) + b) for outcomes [n] of 0 and 1, by Newton's
    method; a prior worth one edge holds it at (1, 0) where the data say nothing.
    """
    x = np.stack([log_q - np.log(-np.expm1(log_q)), np.ones_like(log_q)], axis=1)
    identity = np.array([1.0, 0.0])
    theta, prior = identity.copy(), np.eye(2)

    def loss(theta: Array) -> float:
        z = x @ theta
        gap = theta - identity
        return float((np.logaddexp(0, z) - happened * z).sum() + 0.5 * gap @ prior @ gap)

    for _ in range(steps):
        p = _sigmoid(x @ theta)
        gradient = x.T @ (p - happened) + prior @ (theta - identity)
        step = np.linalg.solve(x.T * (p * (1 - p)) @ x + prior, gradient)
        scale = 1.0
        while loss(theta - scale * step) > loss(theta) and scale > 1e-6:
            scale /= 2
        theta = theta - scale * step
        if np.abs(scale * step).max() < 1e-9:
            break
    return max(float(theta[0]), 1e-3), float(theta[1])


def _by_bin(predicted: Array, happened: Array, bins: int) -> tuple[Array, Array, Array]:
    place = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    weights = (np.ones_like(predicted), predicted, happened)
    counts, sums, hits = (np.bincount(place, weight, bins).astype(np.float64) for weight in weights)
    return counts, sums, hits


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))
