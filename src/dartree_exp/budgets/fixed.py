"""The whole budget in every round (the default of every published tree method)."""

from __future__ import annotations

from typing import Any, Self

from dartree_exp.interfaces import DraftTree, Limits, RoundResult, RoundView, Scorer


class FixedBudget:
    """Always `tree.budget` nodes."""

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls()

    def drafts(self, view: RoundView) -> bool:
        return True

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        return view.limits

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        return tree

    def observe(self, result: RoundResult) -> None:
        return None
