"""DSpark's dynamic draft length (arXiv 2607.05147), for chains as published and for trees by the
same rule.
"""

from __future__ import annotations

from typing import Any, Self

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.interfaces import DraftTree, RoundView
from dartree_exp.kernels.tree_mask import visibility
from dartree_exp.trees.prune import leading


class ConfidenceBudget(FixedBudget):
    """Cuts a path before its first node whose confidence is below `threshold` (strict, so 0 keeps
    every node).

    Each position's confidence is compared alone, not the product along the path. It depends on the
    slot and the previous token, so siblings share it.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(settings.threshold)

    def trim(self, view: RoundView, tree: DraftTree, scorer: Any) -> DraftTree:
        """scorer: one with `confidence`."""
        if self._threshold == 0 or tree.num_nodes == 0:
            return tree
        doubtful = scorer.confidence(tree) < self._threshold  # [R, N]
        on_path = visibility(tree.parents)[..., 1:, 1:]
        kept = ~(on_path & doubtful.unsqueeze(-2)).any(dim=-1)
        return leading(tree, kept)
