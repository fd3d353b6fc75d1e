"""The candidates of every depth and their uncorrected log-probabilities: what all scorers of a
block share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dartree_exp.interfaces import Block, ConfidenceHead
from dartree_exp.kernels.candidate_select import Selection, candidate_select

if TYPE_CHECKING:
    from dartree_exp.interfaces import DraftTree

NORMALISATIONS = ("candidates", "vocab", "vocab_on_prefix")


def step_log_probs(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis: logit - log Z, never above 0.

    Path scores are thus monotone in floating point; (parent + logit) - log Z, as in the released
    DARTree, can lift a child an ulp above its parent and break prefix closure at beta = 0. The
    minimum with 0 is built in: torch subtracts the row's maximum and then a logarithm that is never
    negative, in an order that rounds to at most 0.
    """
    return torch.log_softmax(logits, dim=-1)


def look_up(table: Tensor, place: Tensor) -> Tensor:
    """Entries `place` (int64 [*R, ...]) of each request's own table [*R, K]."""
    if table.numel() == table.shape[-1]:  # one request: a plain lookup is the faster operation
        return table.flatten()[place]
    return table.gather(-1, place.flatten(1)).view_as(place)


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
        self.hidden = block.hidden  # [*R, D, H]
        self.logits = block.logits  # float32 [*R, D, Vd]
        self.requests = block.logits.shape[:-2]  # *R
        self.num_drafts, size = block.logits.shape[-2:]
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
        """Base logits and columns of the candidates, [*R, D, K] each."""
        return candidate_select(
            self.logits, self.count, logsumexp=self._over_vocab and not self.whole
        )

    @cached_property
    def columns_of(self) -> tuple[Tensor, ...]:
        """Columns of the candidates by depth, int64 [*R, K] each."""
        return self.selection.columns.unbind(-2)

    @cached_property
    def ids(self) -> Tensor:
        """Target ids of the candidates, int64 [*R, D, K], base order."""
        return self.column_ids[self.selection.columns]

    @cached_property
    def ids_of(self) -> tuple[Tensor, ...]:
        """The same by depth, int64 [*R, K] each: indexing a tuple spares builders a tensor
        operation per depth.
        """
        return self.ids.unbind(-2)

    def base_rows(self, depths: int | None = None) -> Tensor:
        """Uncorrected log-probabilities of the first `depths` depths: [*R, depths, K], or [*R,
        depths, Vd] where `whole`.
        """
        if self.whole:
            return step_log_probs(self.logits[..., :depths, :])
        values, log_z = self.selection.values[..., :depths, :], self.selection.logsumexp
        if log_z is None:
            return step_log_probs(values)
        return (values - log_z[..., :depths, None]).clamp_(max=0)


class BlockScorer(ABC):
    """A `Scorer` over a block: subclasses give rows of log-probabilities, this class puts names and
    order to them.
    """

    path_dependent: bool
    confidence_head: ConfidenceHead | None = None

    def __init__(self, table: MenuTable, roots: int | tuple[int, ...]) -> None:
        self.table = table
        self.num_drafts = table.num_drafts
        self.roots = roots
        self.root = torch.tensor(roots, device=table.logits.device)

    def finite(self) -> Tensor:
        return torch.isfinite(self.table.logits.sum((-2, -1), dtype=torch.float64))

    def fault(self, request: int) -> str:
        """What is not finite, where `finite` says so; reads the device."""
        logits = self.table.logits[request] if self.table.requests else self.table.logits
        bad = int((~logits.isfinite()).sum())
        return f"draft logits: {bad} of {logits.numel()} values are NaN or infinite"

    def confidence(self, tree: DraftTree) -> Tensor:
        """float32 [*R, N]: how likely each draft is accepted, given that those before it are."""
        assert self.confidence_head is not None
        previous = tree.tokens.gather(-1, tree.parents[..., 1:].clamp(min=0))
        depth = tree.depths[..., 1:].clamp(min=1)
        slot = (depth - 1).unsqueeze(-1).expand(*depth.shape, self.table.hidden.shape[-1])
        hidden = self.table.hidden.gather(-2, slot)
        return self.confidence_head.probability(hidden, previous, depth)

    @abstractmethod
    def start(self) -> Any:
        """State of the roots."""

    @abstractmethod
    def advance(self, state: Any, depth: int, parent: Tensor, token: Tensor) -> Any:
        """See `interfaces.Scorer`."""

    @abstractmethod
    def one(self, request: int) -> BlockScorer:
        """See `interfaces.Scorer`."""

    @abstractmethod
    def rows(self, state: Any, depth: int) -> Tensor:
        """Log-probabilities [*R, N, K] in base order; [*R, N, Vd] in column order where the table
        is whole.
        """

    def candidates(self, depth: int) -> Tensor:
        return self.table.ids_of[depth - 1]

    def score(self, state: Any, depth: int) -> Tensor:
        rows = self.rows(state, depth)
        return self.chosen(rows, depth) if self.table.whole else rows

    def chosen(self, rows: Tensor, depth: int) -> Tensor:
        """The candidates [*R, N, K] of rows [*R, N, Vd] in column order."""
        columns = self.table.columns_of[depth - 1]
        if columns.numel() == columns.shape[-1]:
            return rows[..., columns.flatten()]
        return rows.gather(-1, columns.unsqueeze(-2).expand(*rows.shape[:-1], -1))

    def best(self, state: Any, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        log_prob, place = self.rows(state, depth).max(dim=-1)
        token, rank = self._at(place, depth)
        return token, log_prob, rank

    def top(self, state: Any, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        count = min(count, self.table.count)
        log_probs, places, _ = candidate_select(self.rows(state, depth), count)
        tokens, ranks = self._at(places, depth)
        return tokens, log_probs, ranks

    def token(self, place: Tensor, depth: int) -> Tensor:
        """Target ids of entries `place` (int64 [*R, ...]) of a row of `depth`."""
        if self.table.whole:
            return self.table.column_ids[place]
        return look_up(self.candidates(depth), place)

    def _at(self, place: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Tokens and ranks of entries `place` (int64 [*R, ...]) of a row.

        Where the table is whole, a rank is the number of columns ahead: one pass over the row for
        each entry, less than putting the row in order for the few entries that builders ask for.
        """
        if not self.table.whole:
            return self.token(place, depth), place
        base = self.table.logits[..., depth - 1, :]
        own = look_up(base, place).unsqueeze(-1)
        requests, size = base.shape[:-1], base.shape[-1]
        base = base.view(*requests, *[1] * (place.dim() - len(requests)), size)
        earlier = torch.arange(size, device=base.device) < place.unsqueeze(-1)
        ahead = (base > own) | ((base == own) & earlier)
        return self.table.column_ids[place], ahead.sum(dim=-1)


class MenuScorer(BlockScorer):
    """One menu per depth, whatever the path; `menus` are the rows of all depths, [*R, D, K] or [*R,
    D, Vd]. A state is the number of its nodes.
    """

    path_dependent = False

    def __init__(self, table: MenuTable, roots: int | tuple[int, ...], menus: Tensor) -> None:
        super().__init__(table, roots)
        self._menus = menus.unsqueeze(-2).unbind(-3)  # [*R, 1, K] each

    def start(self) -> int:
        return 1

    def rows(self, state: int, depth: int) -> Tensor:
        return self._menus[depth - 1].expand(*self.table.requests, state, -1)

    def top(self, state: int, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        tokens, log_probs, ranks = super().top(1, depth, count)  # one menu serves all parents
        size = (*self.table.requests, state, tokens.shape[-1])
        return tokens.expand(size), log_probs.expand(size), ranks.expand(size)

    def advance(self, state: int, depth: int, parent: Tensor, token: Tensor) -> int:
        return parent.shape[-1]
