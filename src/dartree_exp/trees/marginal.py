"""Marginal scoring: every depth on its own, as a block-parallel backbone predicts it (DFlash,
DDTree).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.trees.menu import MenuScorer, MenuTable

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block


class MarginalScorer(MenuScorer):
    """Base logits, no correction: all depths count as uncorrected for `normalise`."""

    def __init__(self, block: Block, candidates: int | str, normalise: str) -> None:
        table = MenuTable(block, candidates, normalise)
        super().__init__(table, table.base_rows())
