"""The chain: one greedy path (DFlash with marginal scores, Domino with its head)."""

from __future__ import annotations

from typing import Self

import torch

from dartree_exp.trees.scorer import Scorer, levels
from dartree_exp.trees.spec import TreeSettings
from dartree_exp.trees.tree import DraftTree, Ledger


class ChainBuilder:
    """The best candidate of each depth, in the state of the chain so far."""

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls()

    def build(self, scorer: Scorer, root: int, depth_limit: int, budget: int) -> DraftTree:
        """A path of min(depth_limit, drafts, budget) nodes."""
        length = min(levels(scorer, depth_limit, budget), budget)
        state = scorer.start(root)
        ledger = Ledger(root, state.device)
        only = torch.zeros(1, dtype=torch.int64, device=state.device)
        score = None
        for depth in range(1, length + 1):
            token, step, rank = scorer.best(state, depth)
            score = step if score is None else score + step
            ledger.add_level(only, token, score, rank)
            if depth < length:
                state = scorer.advance(state, depth, only, token)
        return ledger.tree()
