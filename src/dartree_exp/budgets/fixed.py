"""The whole budget in every round (the default of every published tree method)."""

from __future__ import annotations

from typing import Any, Self

from dartree_exp.interfaces import Limits, RoundResult, RoundView, Scorer
from dartree_exp.trees.tree import DraftTree


class FixedBudget:
    """Always `tree.budget` nodes."""

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls()

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        return view.limits

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        return tree

    def observe(self, result: RoundResult) -> None:
        return None
