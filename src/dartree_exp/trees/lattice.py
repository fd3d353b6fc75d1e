"""Lattice scoring: the corrected rows after the best base candidates of each depth, for heads that
read only the token before (TreeFlash, arXiv 2606.03819).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.interfaces import Block, CorrectionHead
from dartree_exp.kernels.candidate_select import candidate_select
from dartree_exp.trees.corrected import CorrectedScorer
from dartree_exp.trees.menu import MenuTable, Scoring, step_log_probs

# Place of the token read last among the m of its depth; m: it is not one of them.
State = Int64[Tensor, "*R N"]


class LatticeScorer(CorrectedScorer):
    """A table of transitions at every depth: log softmax over the drafting vocabulary after each of
    the m tokens with the best base logits of the depth before. A node whose token is not one of
    them has no children: its rows are -inf.

    m is `tree.candidates`. A depth's table is made when it is first needed, by one product.
    """

    path_dependent = True

    @classmethod
    def of_round(
        cls, block: Block, roots: int | tuple[int, ...], head: CorrectionHead, how: Scoring
    ) -> LatticeScorer:
        return cls(block, roots, head, how.count)

    def __init__(
        self,
        block: Block,
        roots: int | tuple[int, ...],
        head: CorrectionHead,
        candidates: int | str,
    ) -> None:
        if not head.last_token:
            raise ValueError(f"{type(head).__name__}: a lattice needs a head that reads one token")
        if isinstance(candidates, str):
            raise ValueError("candidates=all: a lattice needs a number")
        super().__init__(MenuTable(block, "all", "vocab"), roots, head)
        self._block, self._count = block, candidates
        columns = candidate_select(block.logits, min(candidates, block.logits.shape[-1])).columns
        self._tokens = self.table.column_ids[columns].unbind(-2)  # by depth, [*R, m]
        ids = self.table.column_ids.expand(*self.table.requests, self.num_drafts, -1)
        self._prepared = head.prepare(block, ids)
        self._root_state = head.start(roots)
        self._tables: dict[int, Float[Tensor, "*R rows Vd"]] = {}

    def one(self, request: int) -> LatticeScorer:
        assert isinstance(self.roots, tuple)
        return LatticeScorer(self._block.one(request), self.roots[request], self._head, self._count)

    def start(self) -> State:
        return torch.zeros_like(self.root).unsqueeze(-1)

    def rows(self, state: State, depth: int) -> Float[Tensor, "*R N Vd"]:
        table = self._table(depth)
        if table.dim() == 2:
            return table[state]
        return table.gather(-2, state.unsqueeze(-1).expand(*state.shape, table.shape[-1]))

    def advance(
        self, state: State, depth: int, parent: Int64[Tensor, "*R M"], token: Int64[Tensor, "*R M"]
    ) -> Int64[Tensor, "*R M"]:
        same = token.unsqueeze(-1) == self._tokens[depth - 1].unsqueeze(-2)
        return torch.where(same.any(-1), same.int().argmax(-1), same.shape[-1])

    def _table(self, depth: int) -> Float[Tensor, "*R rows Vd"]:
        """Rows of the depth's m parents and one of -inf; of the root alone at depth 1."""
        if depth not in self._tables:
            state = self._root_state
            if depth > 1:
                tokens = self._tokens[depth - 2]
                requests = torch.arange(state.shape[0], device=tokens.device)
                parent = requests.repeat_interleave(tokens.shape[-1])
                state = self._head.advance(
                    self._prepared, state, depth - 1, parent, tokens.flatten()
                )
            correction = self._head.correction(self._prepared, state, depth)
            base = self.table.logits[..., depth - 1, :].unsqueeze(-2)
            rows = step_log_probs(self.corrected(base, correction))
            if depth > 1:
                rows = torch.nn.functional.pad(rows, (0, 0, 0, 1), value=-math.inf)
            self._tables[depth] = rows
        return self._tables[depth]
