"""AdaFlash's adaptive length (arXiv 2607.19223), for chains as published and for trees by depth."""

from __future__ import annotations

import math
from typing import Any, Self

import torch

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.interfaces import DraftTree, Limits, RoundView
from dartree_exp.trees.prune import leading


class LengthHeadBudget(FixedBudget):
    """Verifies ceil(rate * L) drafts of a chain, L the number of tokens that the drafter's length
    head expects of the block, bonus token included.

    Of a tree as many levels: the number of nodes stays that of the budget, so a tree that is
    expected to be accepted for a short way is wide instead of deep.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._levels: list[int] = []  # of each request in this round

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(settings.rate)

    def plan(self, view: RoundView, scorer: Any) -> Limits:
        """scorer: one with `length`."""
        # NaN: the loop refuses the round after its verification, and says why.
        drafts = (self._rate * scorer.length()).nan_to_num(nan=math.inf)
        self._levels = drafts.ceil().clamp(max=view.limits.depth).int().tolist()
        return Limits(max(self._levels), view.limits.nodes)

    def trim(self, view: RoundView, tree: DraftTree, scorer: Any) -> DraftTree:
        if min(self._levels) >= tree.deepest:
            return tree
        depths = tree.depths[..., 1:]
        return leading(tree, depths <= torch.tensor(self._levels, device=depths.device)[:, None])
