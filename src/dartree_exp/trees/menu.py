"""The candidates of every depth and their uncorrected log-probabilities, shared by all scorers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Float32, Int64, Shaped
from torch import Tensor

from dartree_exp.interfaces import Best, Block, ConfidenceHead, Draws, LengthHead, Sample, Top
from dartree_exp.kernels.candidate_select import Selection, candidate_select
from dartree_exp.trees.spec import LATENT_SUMMED, NORMALISATIONS

if TYPE_CHECKING:
    from dartree_exp.interfaces import DraftTree


@dataclass(frozen=True)
class Scoring:
    """How a block is scored.

    candidates: K, or "all". normalise: what log Z runs over, see `MenuTable`. menu: DDTree's
    K = min(B, V) best of each depth's scored row; replaces `candidates`, and a static chain then
    runs over the whole draft vocabulary. draws: conditional only, samples a chain's uncorrected
    depths; None: their argmax; mixture: samples the category. latent: see `spec.LATENTS`.
    """

    candidates: int | str
    normalise: str
    menu: int | None = None
    draws: Draws | None = None
    latent: str = LATENT_SUMMED

    @property
    def count(self) -> int | str:
        return self.menu or self.candidates


def step_log_probs(logits: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
    """Log-softmax over the last axis: logit - log Z, never above 0.

    Path scores are thus monotone in floating point; (parent + logit) - log Z, as in the released
    DARTree, can lift a child an ulp above its parent and break prefix closure at beta = 0. No
    minimum with 0 is needed: torch subtracts the row's maximum and then a logarithm >= 0.
    """
    return torch.log_softmax(logits, dim=-1)


def look_up(
    table: Shaped[Tensor, "*R K"], place: Int64[Tensor, "*entries"]
) -> Shaped[Tensor, "*entries"]:
    """Entries `place` ([*R, ...]) of each request's own table."""
    if table.numel() == table.shape[-1]:  # one request: a plain lookup is faster
        return table.flatten()[place]
    return table.gather(-1, place.flatten(1)).view_as(place)


class MenuTable:
    """The K best tokens of each depth by base logit, in that order (equal logits by token id).

    `normalise` is the set that a log-probability is normalised over: `candidates` (the K of the
    depth: released DARTree), `vocab` (the draft vocabulary, which is the whole vocabulary unless
    the block is restricted: DDTree, PCTree) or `vocab_on_prefix` (the draft vocabulary at
    uncorrected depths, the candidates at the others: DominoTree).

    If every column of the block is a candidate (`whole`), rows are kept in column order and sorted
    only when a builder needs it: sorting a vocabulary for each depth can take longer than the rest
    of the round, and a chain does not need it.
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
    def columns_of(self) -> tuple[Int64[Tensor, "*R K"], ...]:
        """Columns of the candidates by depth."""
        return self.selection.columns.unbind(-2)

    @cached_property
    def ids(self) -> Int64[Tensor, "*R D K"]:
        """Target ids of the candidates, base order."""
        return self.column_ids[self.selection.columns]

    @cached_property
    def ids_of(self) -> tuple[Int64[Tensor, "*R K"], ...]:
        """The same by depth; indexing a tuple saves a tensor operation per depth."""
        return self.ids.unbind(-2)

    def base_rows(self, depths: int | None = None) -> Float[Tensor, "*R depths K"]:
        """Uncorrected log-probabilities of the first `depths` depths; K = Vd if `whole`."""
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
    length_head: LengthHead | None = None

    def __init__(self, table: MenuTable, roots: int | tuple[int, ...]) -> None:
        self.table = table
        self.num_drafts = table.num_drafts
        self.roots = roots
        self.root = torch.tensor(roots, device=table.logits.device)

    @property
    def drafted(self) -> Float[Tensor, "*R D Vd"]:
        """The logits that the drafter's backbone gave."""
        return self.table.logits

    def finite(self) -> Bool[Tensor, "*R"]:
        return torch.isfinite(self.drafted.sum((-2, -1), dtype=torch.float64))

    def fault(self, request: int) -> str:
        """A message that names what is not finite; reads the device."""
        logits = self.drafted[request] if self.table.requests else self.drafted
        bad = int((~logits.isfinite()).sum())
        return f"draft logits: {bad} of {logits.numel()} values are NaN or infinite"

    def confidence(self, tree: DraftTree) -> Float32[Tensor, "*R N"]:
        """The probability that each draft is accepted if those before it are."""
        assert self.confidence_head is not None
        previous = tree.tokens.gather(-1, tree.parents[..., 1:].clamp(min=0))
        depth = tree.depths[..., 1:].clamp(min=1)
        slot = (depth - 1).unsqueeze(-1).expand(*depth.shape, self.table.hidden.shape[-1])
        hidden = self.table.hidden.gather(-2, slot)
        return self.confidence_head.probability(hidden, previous, depth)

    def length(self) -> Float32[Tensor, "*R"]:
        """The tokens that the round is expected to advance, bonus token included."""
        assert self.length_head is not None
        return self.length_head.tokens(self.table.hidden)

    @abstractmethod
    def start(self) -> Any:
        """State of the roots."""

    @abstractmethod
    def advance(
        self,
        state: Any,
        depth: int,
        parent: Int64[Tensor, "*R M"],
        token: Int64[Tensor, "*R M"],
    ) -> Any:
        """See `interfaces.Scorer`."""

    @abstractmethod
    def one(self, request: int) -> BlockScorer:
        """See `interfaces.Scorer`."""

    @abstractmethod
    def rows(self, state: Any, depth: int) -> Float[Tensor, "*R N K"]:
        """Log-probabilities in base order; in column order if the table is whole."""

    def candidates(self, depth: int) -> Int64[Tensor, "*R K"]:
        return self.table.ids_of[depth - 1]

    def score(self, state: Any, depth: int) -> Float[Tensor, "*R N K"]:
        rows = self.rows(state, depth)
        return self.chosen(rows, depth) if self.table.whole else rows

    def chosen(self, rows: Float[Tensor, "*R N Vd"], depth: int) -> Float[Tensor, "*R N K"]:
        """The candidates of rows that are in column order."""
        columns = self.table.columns_of[depth - 1]
        if columns.numel() == columns.shape[-1]:
            return rows[..., columns.flatten()]
        return rows.gather(-1, columns.unsqueeze(-2).expand(*rows.shape[:-1], -1))

    def best(self, state: Any, depth: int) -> Best:
        log_prob, place = self.rows(state, depth).max(dim=-1)
        token, rank = self._at(place, depth)
        return token, log_prob, rank

    def top(self, state: Any, depth: int, count: int) -> Top:
        count = min(count, self.table.count)
        log_probs, places, _ = candidate_select(self.rows(state, depth), count)
        tokens, ranks = self._at(places, depth)
        return tokens, log_probs, ranks

    def sample(
        self, state: Any, depth: int, draws: Draws, count: int, temperature: float | None
    ) -> Sample:
        """Drafts drawn without replacement from the law over all candidates."""
        rows = self.rows(state, depth)
        places, law = draws.drafts(rows, depth, min(count, self.table.count), temperature)
        tokens, ranks = self._at(places, depth)
        ids = self.table.column_ids if self.table.whole else self.candidates(depth)
        return Sample(tokens, rows.gather(-1, places), ranks, law, ids)

    def token(self, place: Int64[Tensor, "*entries"], depth: int) -> Int64[Tensor, "*entries"]:
        """Target ids of entries `place` ([*R, ...]) of a row of `depth`."""
        if self.table.whole:
            return self.table.column_ids[place]
        return look_up(self.candidates(depth), place)

    def _at(
        self, place: Int64[Tensor, "*entries"], depth: int
    ) -> tuple[Int64[Tensor, "*entries"], Int64[Tensor, "*entries"]]:
        """Tokens and ranks of entries `place` ([*R, ...]) of a row.

        If the table is whole, a rank is the number of better columns, counted in one pass over the
        row for each entry; builders ask for few entries, so this is faster than sorting the row.
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
    """One menu per depth for all paths; `menus` are the rows of all depths. A state is its number
    of nodes.
    """

    path_dependent = False

    def __init__(
        self, table: MenuTable, roots: int | tuple[int, ...], menus: Float[Tensor, "*R D K"]
    ) -> None:
        super().__init__(table, roots)
        self._menus = menus.unsqueeze(-2).unbind(-3)  # [*R, 1, K] each

    def start(self) -> int:
        return 1

    def rows(self, state: int, depth: int) -> Float[Tensor, "*R {state} K"]:
        return self._menus[depth - 1].expand(*self.table.requests, state, -1)

    def top(self, state: int, depth: int, count: int) -> Top:
        tokens, log_probs, ranks = super().top(1, depth, count)  # one menu serves all parents
        size = (*self.table.requests, state, tokens.shape[-1])
        return tokens.expand(size), log_probs.expand(size), ranks.expand(size)

    def advance(
        self,
        state: int,
        depth: int,
        parent: Int64[Tensor, "*R M"],
        token: Int64[Tensor, "*R M"],
    ) -> int:
        return parent.shape[-1]
