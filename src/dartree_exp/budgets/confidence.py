"""DSpark's dynamic draft length (arXiv 2607.05147), for chains as published and for trees by the
same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from dartree_exp.budgets.policy import RoundState
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.trees.prune import subtree
from dartree_exp.trees.tree import DraftTree


@dataclass(frozen=True)
class ConfidenceBudget:
    """A path ends before its first node whose confidence is below `threshold` (strict, so that 0
    keeps every node).

    The confidence of each position counts alone, not the product along the path. It depends on the
    slot and the token before, hence siblings share it. A chain that keeps nothing is a plain
    decoding step.
    """

    budget: int
    threshold: float
    confidence: ConfidenceHead

    @classmethod
    def from_settings(cls, settings: Any, budget: int, confidence: ConfidenceHead) -> Self:
        return cls(budget, settings.threshold, confidence)

    def plan(self, state: RoundState) -> int:
        return self.budget

    def trim(self, state: RoundState, tree: DraftTree) -> DraftTree:
        if self.threshold == 0 or tree.num_nodes == 0:
            return tree
        depth = tree.depths[1:]
        previous = tree.tokens.index_select(0, tree.parents[1:])
        doubtful = (
            self.confidence.probability(state.block.hidden[depth - 1], previous, depth)
            < self.threshold
        )
        on_path = tree.visibility()[1:, 1:]
        kept = (~(on_path & doubtful).any(dim=1)).nonzero().squeeze(1) + 1
        return tree if kept.shape[0] == tree.num_nodes else subtree(tree, kept)

    def observe(self, round_: Any) -> None:
        return None
