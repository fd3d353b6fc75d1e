"""Conditional scoring: the head corrects the base logits along each node's own path (Domino, DominoTree, DARTree)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dartree_exp.trees.menu import BlockScorer, MenuTable, step_log_probs

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block
    from dartree_exp.drafters.heads import CorrectionHead


class ConditionalScorer(BlockScorer):
    """A correction head of any kind over the candidates of a block.

    Depths up to the head's `pure_draft_prefix_len` keep the base logits; the state reads every token all the same.
    Corrections run over the K candidates of a depth, or over every column of the block where the whole draft
    vocabulary is needed (normalise=vocab, or as many candidates as columns): the honest but dear version.
    """

    path_dependent = True

    def __init__(self, block: Block, head: CorrectionHead, candidates: int | str, normalise: str) -> None:
        super().__init__(MenuTable(block, candidates, normalise))
        self._head = head
        self._prefix = min(head.pure_draft_prefix_len, self.num_drafts)
        self._prefix_rows = self.table.base_rows(self._prefix)[:, None].unbind()  # [1, K] each
        self._all_columns = normalise == "vocab" or self.table.whole
        ids = self.table.column_ids.expand(self.num_drafts, -1) if self._all_columns else self.table.ids
        self._base = (self.table.logits if self._all_columns else self.table.selection.values).unbind()
        self._prepared = head.prepare(block, ids)

    def start(self, root: int) -> Tensor:
        return self._head.start(root)

    def rows(self, state: Tensor, depth: int) -> Tensor:
        if depth <= self._prefix:
            return self._prefix_rows[depth - 1].expand(state.shape[0], -1)
        correction = self._head.correction(self._prepared, state, depth)
        rows = step_log_probs(self._base[depth - 1] + correction)
        if self._all_columns and not self.table.whole:
            return rows[:, self.table.selection.columns[depth - 1]]
        return rows

    def advance(self, state: Tensor, depth: int, parent: Tensor, token: Tensor) -> Tensor:
        return self._head.advance(self._prepared, state, depth, parent, token)
