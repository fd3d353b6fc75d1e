"""The chance that a drafted node lies on the accepted path, from the tree's own scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float64
from torch import Tensor

from dartree_exp.interfaces import DraftTree

CLAMP = 1e-6  # an edge's probability is at least this far from 0 and 1
Pair = tuple[float, float]
RAW: Pair = (1.0, 0.0)


@dataclass(frozen=True)
class EdgeCalibration:
    """p(accepted | parent accepted) = sigmoid(a logit(q) + b) of a drafter's edges: a Platt pair
    (a, b) by temperature, as TreeSpark's (arXiv 2609.22098) at T = 0. Without pairs, p = q.
    """

    pairs: Mapping[float, Pair] = field(default_factory=dict)

    def record(self) -> dict[str, list[float]] | str:
        """What environment.json says of it."""
        return {f"{t:g}": list(self.pairs[t]) for t in sorted(self.pairs)} or "uncalibrated"

    def at(self, temperature: float) -> Pair:
        """Linear between the temperatures that were fitted, the nearest one's beyond them."""
        if not self.pairs:
            return RAW
        known = sorted(self.pairs)
        below = max((t for t in known if t <= temperature), default=known[0])
        above = min((t for t in known if t >= temperature), default=known[-1])
        share = (temperature - below) / (above - below) if above > below else 0.0
        (a, b), (c, d) = self.pairs[below], self.pairs[above]
        return a + share * (c - a), b + share * (d - b)


def edge_log_probs(tree: DraftTree) -> Float64[Tensor, "*R N"]:
    """log q of each drafted node below its parent, clamped away from 0 and 1; -inf at padding.

    NaN counts as 0: the loop refuses the round after its verification, and says why.
    """
    low, high = math.log(CLAMP), math.log1p(-CLAMP)
    scores, above = tree.scores.double(), tree.parents[..., 1:]
    steps = scores[..., 1:] - scores.gather(-1, above.clamp(min=0))
    return steps.nan_to_num(nan=low).clamp(low, high).masked_fill(above < 0, -torch.inf)


def path_chances(
    tree: DraftTree, a: Float64[Tensor, "*R 1"], b: Float64[Tensor, "*R 1"]
) -> Float64[Tensor, "*R N"]:
    """The product of sigmoid(a logit(q) + b) along each drafted node's path; 0 at padding.

    A product never exceeds that of the parent, in floating point too: the parent's own value is
    multiplied by the node's. So the best nodes by chance, ties by index, are prefix closed.
    """
    log_q = edge_log_probs(tree)
    edges = torch.sigmoid(a * (log_q - torch.log(-torch.expm1(log_q))) + b)
    edges = edges.masked_fill(log_q.isneginf(), 0)
    edges = torch.nn.functional.pad(edges, (1, 0), value=1.0)
    above = tree.parents.clamp(min=0)
    chances = edges
    for _ in range(tree.deepest - 1):  # after k steps, nodes down to depth k + 1 are complete
        chances = edges * chances.gather(-1, above)
    return chances[..., 1:]


def best_first(
    chances: Float64[Tensor, "*R N"],
) -> tuple[Float64[Tensor, "*R N"], Tensor]:
    """Chances from the best down, ties by index, and each node's place in this order."""
    ordered, order = chances.sort(dim=-1, descending=True, stable=True)
    numbers = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return ordered, torch.empty_like(order).scatter_(-1, order, numbers)
