"""Conditional scoring: the head corrects the base logits along each node's own path (Domino,
DominoTree, DARTree).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from dartree_exp.interfaces import Best, Block, CorrectionHead, Draws
from dartree_exp.trees.corrected import CorrectedScorer
from dartree_exp.trees.menu import MenuTable, Scoring, step_log_probs

State = Shaped[Tensor, "nodes ..."]  # the head's own


class ConditionalScorer(CorrectedScorer):
    """A correction head over the candidates of a block. A state is the head's: the nodes of all
    requests in one dimension.

    Depths up to the head's `pure_draft_prefix_len` keep the base logits, but the state reads every
    token. Corrections run over the K candidates of a depth, or over every column of the block if
    the whole draft vocabulary is needed (normalise=vocab, or as many candidates as columns).
    """

    path_dependent = True

    @classmethod
    def of_round(
        cls, block: Block, roots: int | tuple[int, ...], head: CorrectionHead, how: Scoring
    ) -> ConditionalScorer:
        if how.draws is not None:
            return ReleasedScorer(block, roots, head, how.count, how.normalise, how.draws)
        return ConditionalScorer(block, roots, head, how.count, how.normalise)

    def __init__(
        self,
        block: Block,
        roots: int | tuple[int, ...],
        head: CorrectionHead,
        candidates: int | str,
        normalise: str,
    ) -> None:
        super().__init__(MenuTable(block, candidates, normalise), roots, head)
        table = self.table
        self._block, self._settings = block, (candidates, normalise)
        self._prefix = min(head.pure_draft_prefix_len, self.num_drafts)
        # [*R, 1, K] each
        self._prefix_rows = table.base_rows(self._prefix).unsqueeze(-2).unbind(-3)
        self._all_columns = normalise == "vocab" or table.whole
        if self._all_columns:
            ids = table.column_ids.expand(*table.requests, self.num_drafts, -1)
            base = table.logits
        else:
            ids, base = table.ids, table.selection.values
        self._base = base.unsqueeze(-2).unbind(-3)  # [*R, 1, K] each
        self._prepared = head.prepare(block, ids)

    def one(self, request: int) -> ConditionalScorer:
        assert isinstance(self.roots, tuple)
        block, root = self._block.one(request), self.roots[request]
        return ConditionalScorer(block, root, self._head, *self._settings)

    def start(self) -> State:
        return self._head.start(self.roots)

    def rows(self, state: State, depth: int) -> Float[Tensor, "*R N K"]:
        if depth <= self._prefix:
            return self._of_all(self._prefix_rows[depth - 1], state)
        rows = step_log_probs(self.logits(state, depth))
        if self._all_columns and not self.table.whole:
            return self.chosen(rows, depth)
        return rows

    def logits(self, state: State, depth: int) -> Float[Tensor, "*R N K"]:
        """The logits that `rows` normalises: of the candidates, or of all columns (K = Vd)."""
        base = self._base[depth - 1]
        if depth <= self._prefix:
            return self._of_all(base, state)
        correction = self._head.correction(self._prepared, state, depth)
        return self.corrected(base, correction)

    def advance(
        self,
        state: State,
        depth: int,
        parent: Int64[Tensor, "*R M"],
        token: Int64[Tensor, "*R M"],
    ) -> Shaped[Tensor, "children ..."]:
        if parent.dim() == 2 and parent.shape[0] > 1:
            requests = parent.shape[0]
            first = torch.arange(requests, device=parent.device) * (state.shape[0] // requests)
            parent = parent + first[:, None]
        return self._head.advance(self._prepared, state, depth, parent.flatten(), token.flatten())

    def _of_all(self, row: Float[Tensor, "*R 1 K"], state: State) -> Float[Tensor, "*R N K"]:
        """The row of a depth for each of the state's nodes."""
        requests = self.table.requests
        return row.expand(*requests, state.shape[0] // (requests.numel()), -1)


class ReleasedScorer(ConditionalScorer):
    """Domino's released chain at T > 0: uncorrected depths are drawn from softmax(base logits / T)
    instead of the argmax.

    The draw is over the candidates, hence over the whole draft vocabulary for candidates=all. Only
    `best` differs, because chains use nothing else.
    """

    def __init__(
        self,
        block: Block,
        roots: int | tuple[int, ...],
        head: CorrectionHead,
        candidates: int | str,
        normalise: str,
        draws: Draws,
    ) -> None:
        super().__init__(block, roots, head, candidates, normalise)
        self._draws = draws

    def one(self, request: int) -> ConditionalScorer:
        raise NotImplementedError("only chains sample drafts, and a chain reads all requests")

    def best(self, state: State, depth: int) -> Best:
        if depth > self._prefix:
            return super().best(state, depth)
        logits = self.table.logits if self.table.whole else self.table.selection.values
        rows = self.rows(state, depth)
        place = self._draws.draft(logits[..., depth - 1, :], depth).unsqueeze(-1)
        place = place.expand(rows.shape[:-1])
        log_prob = rows.gather(-1, place.unsqueeze(-1)).squeeze(-1)
        token, rank = self._at(place, depth)
        return token, log_prob, rank
