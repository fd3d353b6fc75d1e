"""The candidates of every depth and their uncorrected log-probabilities: what all scorers of a
block share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.kernels.candidate_select import Selection, candidate_select

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block

NORMALISATIONS = ("candidates", "vocab", "vocab_on_prefix")


def step_log_probs(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis: logit - log Z, never above 0.

    Path scores are thus monotone in floating point; (parent + logit) - log Z, as in the released
    DARTree, can lift a child an ulp above its parent and break prefix closure at beta = 0. The
    minimum with 0 is built in: torch subtracts the row's maximum and then a logarithm that is never
    negative, in an order that rounds to at most 0.
    """
    return torch.log_softmax(logits, dim=-1)


class MenuTable:
    """Per depth the K best tokens of a block by base logit, in that order (equal logits by token
    id).

    `normalise` says over what a log-probability is normalised: `candidates` (the K of the depth:
    released DARTree), `vocab` (the draft vocabulary, which is the whole vocabulary unless the block
    is restricted: DDTree, PCTree) or `vocab_on_prefix` (the draft vocabulary at depths no head
    corrects, the candidates at the others: DominoTree).

    Where every column of the block is a candidate (`whole`), rows are kept in column order and put
    in base order only when a builder asks: sorting a vocabulary per depth can cost more than the
    rest of the round, and a chain does not need it.
    """

    def __init__(self, block: Block, candidates: int | str, normalise: str) -> None:
        if normalise not in NORMALISATIONS:
            raise ValueError(
                f"unknown normalisation {normalise!r}: one of {', '.join(NORMALISATIONS)}"
            )
        self.logits = block.logits  # float32 [D, Vd]
        self.num_drafts, size = block.logits.shape
        self.count = size if candidates == "all" else min(int(candidates), size)
        self.whole = self.count == size
        self._over_vocab = normalise != "candidates"  # at depths without a correction
        self.column_ids = (
            torch.arange(size, device=block.logits.device)
            if block.vocab_ids is None
            else block.vocab_ids
        )

    @cached_property
    def selection(self) -> Selection:
        """Base logits [D, K] and columns [D, K] of the candidates."""
        return candidate_select(
            self.logits, self.count, logsumexp=self._over_vocab and not self.whole
        )

    @cached_property
    def ids(self) -> Tensor:
        """Target ids of the candidates, int64 [D, K], base order."""
        return self.column_ids[self.selection.columns]

    @cached_property
    def ids_of(self) -> tuple[Tensor, ...]:
        """The same by depth, int64 [K] each: indexing a tuple spares builders a tensor operation
        per depth.
        """
        return self.ids.unbind()

    def base_rows(self, depths: int | None = None) -> Tensor:
        """Uncorrected log-probabilities of the first `depths` depths: [depths, K], or [depths, Vd]
        where `whole`.
        """
        if self.whole:
            return step_log_probs(self.logits[:depths])
        values = self.selection.values[:depths]
        log_z = self.selection.logsumexp
        return (
            step_log_probs(values)
            if log_z is None
            else (values - log_z[:depths, None]).clamp_(max=0)
        )


class BlockScorer(ABC):
    """A `Scorer` over a block: subclasses give rows of log-probabilities, this class puts names and
    order to them.
    """

    path_dependent: bool

    def __init__(self, table: MenuTable) -> None:
        self.table = table
        self.num_drafts = table.num_drafts

    def finite(self) -> bool:
        return True

    @abstractmethod
    def rows(self, state: Tensor, depth: int) -> Tensor:
        """Log-probabilities [N, K] in base order; [N, Vd] in column order where the table is
        whole.
        """

    def candidates(self, depth: int) -> Tensor:
        return self.table.ids_of[depth - 1]

    def score(self, state: Tensor, depth: int) -> Tensor:
        rows = self.rows(state, depth)
        return rows[:, self.table.selection.columns[depth - 1]] if self.table.whole else rows

    def best(self, state: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        log_prob, place = self.rows(state, depth).max(dim=-1)
        token, rank = self._at(place, depth)
        return token, log_prob, rank

    def top(self, state: Tensor, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        log_probs, places, _ = candidate_select(
            self.rows(state, depth), min(count, self.table.count)
        )
        tokens, ranks = self._at(places, depth)
        return tokens, log_probs, ranks

    def token(self, place: Tensor, depth: int) -> Tensor:
        """Target ids of entries `place` (int64, any shape) of a row of `depth`."""
        return self.table.column_ids[place] if self.table.whole else self.candidates(depth)[place]

    def _at(self, place: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Tokens and ranks of entries `place` (int64, any shape) of a row.

        Where the table is whole, a rank is the number of columns ahead: one pass over the row for
        each entry, less than putting the row in order for the few entries that builders ask for.
        """
        if not self.table.whole:
            return self.candidates(depth)[place], place
        base = self.table.logits[depth - 1]
        own = base[place].unsqueeze(-1)
        earlier = torch.arange(base.shape[0], device=base.device) < place.unsqueeze(-1)
        ahead = (base > own) | ((base == own) & earlier)
        return self.table.column_ids[place], ahead.sum(dim=-1)


class MenuScorer(BlockScorer):
    """One menu per depth, whatever the path; `menus` are the rows of all depths, [D, K] or
    [D, Vd].
    """

    path_dependent = False

    def __init__(self, table: MenuTable, menus: Tensor) -> None:
        super().__init__(table)
        self._menus = menus[:, None].unbind()  # [1, K] each
        self._empty = menus.new_empty(1, 0)

    def start(self, root: int) -> Tensor:
        return self._empty

    def rows(self, state: Tensor, depth: int) -> Tensor:
        return self._menus[depth - 1].expand(state.shape[0], -1)

    def top(self, state: Tensor, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        tokens, log_probs, ranks = super().top(
            self._empty, depth, count
        )  # one menu serves all parents
        size = (state.shape[0], tokens.shape[1])
        return tokens.expand(size), log_probs.expand(size), ranks.expand(size)

    def advance(self, state: Tensor, depth: int, parent: Tensor, token: Tensor) -> Tensor:
        return self._empty.expand(parent.shape[0], 0)
