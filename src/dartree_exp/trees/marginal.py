"""Marginal scoring: depths are independent, as a block-parallel backbone predicts them (DFlash,
DDTree).
"""

from __future__ import annotations

from dartree_exp.interfaces import Block
from dartree_exp.trees.menu import MenuScorer, MenuTable, Scoring


class MarginalScorer(MenuScorer):
    """Base logits without correction: for `normalise`, all depths are uncorrected."""

    @classmethod
    def of_round(
        cls, block: Block, roots: int | tuple[int, ...], head: object, how: Scoring
    ) -> MarginalScorer:
        return MarginalScorer(block, roots, how.count, how.normalise)

    def __init__(
        self, block: Block, roots: int | tuple[int, ...], candidates: int | str, normalise: str
    ) -> None:
        table = MenuTable(block, candidates, normalise)
        super().__init__(table, roots, table.base_rows())
        self._block, self._settings = block, (candidates, normalise)

    def one(self, request: int) -> MarginalScorer:
        assert isinstance(self.roots, tuple)
        return MarginalScorer(self._block.one(request), self.roots[request], *self._settings)
