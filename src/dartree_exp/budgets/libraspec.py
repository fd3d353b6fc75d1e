"""LibraSpec's length of a chain (arXiv 2608.08721, known to us second-hand), and a walk from it on
the measured cost curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, Self

import torch

from dartree_exp.budgets.chances import edge_log_probs
from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.interfaces import DraftTree, RoundView, Scorer
from dartree_exp.trees.prune import leading


def published_length(q: Sequence[float], alpha: float) -> int:
    """eps* = min over i of floor(alpha * sum over j >= i of q_i ... q_j + i), at most the length.

    q: confidence of each draft, given those before it.
    """
    lengths, expected = [len(q)], 0.0
    for i in range(len(q), 0, -1):
        expected = q[i - 1] * (1 + expected)  # drafts accepted from i on, if i is reached
        lengths.append(math.floor(alpha * expected + i))
    return min(lengths)


def walk(start: int, speed: Callable[[int], float], longest: int) -> list[int]:
    """The lengths from `start` on: one draft more while that raises the speed, else one less while
    that does not lower it. Where the speed has one maximum, the walk ends at it.
    """
    lengths = [start]
    while lengths[-1] < longest and speed(lengths[-1] + 1) > speed(lengths[-1]):
        lengths.append(lengths[-1] + 1)
    if len(lengths) == 1:
        while lengths[-1] > 0 and speed(lengths[-1] - 1) >= speed(lengths[-1]):
            lengths.append(lengths[-1] - 1)
    return lengths


class LibraSpecBudget(FixedBudget):
    """The length of each request's chain.

    Published: eps* of `published_length` with alpha 2.2, starting from whole blocks. alpha stands
    for all costs. The paper does not say what q is: here it is the drafter's probability of the
    draft given those before it, not calibrated.

    Ours: from eps* the length moves by one draft at a time while the expected tokens per second
    rise, by the machine's cost curve. So the chain is plain decoding where rows are dear, and whole
    where they are free. Without a measured curve eps* is the length. A chain is at most one block;
    the paper drafts further blocks.
    """

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(settings.alpha)

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        if tree.num_nodes == 0:
            return tree
        counts = [self.length(view, q) for q in edge_log_probs(tree).exp().tolist()]
        number = torch.arange(tree.num_nodes, device=tree.tokens.device)
        kept = number < torch.tensor(counts, device=number.device).unsqueeze(-1)
        return leading(tree, kept, counts)

    def length(self, view: RoundView, q: Sequence[float]) -> int:
        """Of one chain with these confidences."""
        start = published_length(q, self._alpha)
        if math.isnan(view.cost(1)):
            return start
        tokens = list(accumulate(accumulate(q, mul), initial=1.0))  # of 0, 1, ... drafts

        def speed(drafts: int) -> float:
            return tokens[drafts] / (view.overhead.total + view.cost(drafts + 1))

        return walk(start, speed, len(q))[-1]
