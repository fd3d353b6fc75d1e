"""The chain: one path, greedy (DFlash with marginal scores, Domino with its head) or sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch

from dartree_exp.interfaces import DraftTree
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer


class ChainBuilder:
    """The best candidate of each depth, given the chain so far."""

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls()

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """A path of min(limits.depth, drafts, limits.nodes) nodes."""
        length = min(levels(scorer, limits), limits.nodes)
        state = scorer.start()
        ledger = Ledger(scorer.root)
        only = torch.zeros_like(scorer.root).unsqueeze(-1)
        score = None
        for depth in range(1, length + 1):
            token, step, rank = scorer.best(state, depth)
            score = step if score is None else score + step
            ledger.add_level(only, token, score, rank)
            if depth < length:
                state = scorer.advance(state, depth, only, token)
        return ledger.tree()
