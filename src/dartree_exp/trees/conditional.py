"""Conditional scoring: the head corrects the base logits along each node's own path (Domino,
DominoTree, DARTree).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.trees.menu import BlockScorer, MenuTable, step_log_probs

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block
    from dartree_exp.drafters.heads.head import CorrectionHead
    from dartree_exp.trees.scorer import Draw


class ConditionalScorer(BlockScorer):
    """A correction head of any kind over the candidates of a block.

    Depths up to the head's `pure_draft_prefix_len` keep the base logits; the state reads every
    token all the same. Corrections run over the K candidates of a depth, or over every column of
    the block where the whole draft vocabulary is needed (normalise=vocab, or as many candidates as
    columns): the honest but dear version.
    """

    path_dependent = True

    def __init__(
        self, block: Block, head: CorrectionHead, candidates: int | str, normalise: str
    ) -> None:
        super().__init__(MenuTable(block, candidates, normalise))
        self._head = head
        self._prefix = min(head.pure_draft_prefix_len, self.num_drafts)
        self._prefix_rows = self.table.base_rows(self._prefix)[:, None].unbind()  # [1, K] each
        self._all_columns = normalise == "vocab" or self.table.whole
        ids = (
            self.table.column_ids.expand(self.num_drafts, -1)
            if self._all_columns
            else self.table.ids
        )
        self._base = (
            self.table.logits if self._all_columns else self.table.selection.values
        ).unbind()
        self._prepared = head.prepare(block, ids)
        self._extremes: list[Tensor] = []  # of the corrected logits of every call

    def start(self, root: int) -> Tensor:
        return self._head.start(root)

    def rows(self, state: Tensor, depth: int) -> Tensor:
        if depth <= self._prefix:
            return self._prefix_rows[depth - 1].expand(state.shape[0], -1)
        rows = step_log_probs(self.logits(state, depth))
        if self._all_columns and not self.table.whole:
            return rows[:, self.table.selection.columns[depth - 1]]
        return rows

    def logits(self, state: Tensor, depth: int) -> Tensor:
        """What `rows` normalises: [N, K] of the candidates, or [N, Vd] where the whole draft
        vocabulary is scored.
        """
        if depth <= self._prefix:
            return self._base[depth - 1].expand(state.shape[0], -1)
        logits = self._base[depth - 1] + self._head.correction(self._prepared, state, depth)
        self._extremes += torch.aminmax(logits)
        return logits

    def finite(self) -> bool:
        return not self._extremes or bool(torch.stack(self._extremes).isfinite().all())

    def advance(self, state: Tensor, depth: int, parent: Tensor, token: Tensor) -> Tensor:
        return self._head.advance(self._prepared, state, depth, parent, token)


class ReleasedScorer(ConditionalScorer):
    """Domino's released chain at T > 0: uncorrected depths are drawn from softmax(base logits / T),
    not maximised.

    The released graph runner samples the slots before the corrected ones outside of its graph. The
    draw is over the candidates, hence over the whole draft vocabulary for candidates=all. Only
    `best` differs: chains ask for nothing else.
    """

    def __init__(
        self, block: Block, head: CorrectionHead, candidates: int | str, normalise: str, draw: Draw
    ) -> None:
        super().__init__(block, head, candidates, normalise)
        self._draw = draw

    def best(self, state: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        if depth > self._prefix:
            return super().best(state, depth)
        logits = self.table.logits if self.table.whole else self.table.selection.values
        place = self._draw(logits[depth - 1], depth).expand(state.shape[0])
        log_prob = self.rows(state, depth).gather(1, place[:, None])[:, 0]
        token, rank = self._at(place, depth)
        return token, log_prob, rank
