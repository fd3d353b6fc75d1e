"""EAGLE's scorer: the drafter's own forwards, one for each level of the tree.

A state holds the nodes that one call of `advance` made. Their keys and values stay in the cache
behind the text until the next round, so a node can be expanded at any time; a mask hides what is
not on its path.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.interfaces import Best, Draws, Sample, Top
from dartree_exp.kernels.candidate_select import candidate_select

if TYPE_CHECKING:
    from dartree_exp.drafters.eagle.session import EagleDrafter


@dataclass(frozen=True)
class Nodes:
    """N nodes. seen: which of the first S rows behind the text are on their paths, themselves
    included.
    """

    hidden: Float[Tensor, "N H"]
    log_probs: Float[Tensor, "N Vd"]  # of their children
    seen: Bool[Tensor, "N S"]


class EagleScorer:
    """One request; see `interfaces.Scorer`. Scores are over the whole draft vocabulary, and the
    candidates of every depth are all its ids, in their order.
    """

    path_dependent = True

    def __init__(
        self,
        drafter: EagleDrafter,
        cache: DraftCache,
        root: int,
        start: int,
        hidden: Float[Tensor, "1 H"],
        lend: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """cache: of the text, the root's row included. start: position of the root. hidden: the
        output of the root's row.
        """
        self.num_drafts = drafter.num_drafts
        self.root = torch.tensor(root, device=hidden.device)
        self._drafter, self._cache, self._lend = drafter, cache, lend
        self._start, self._text = start, cache.length
        self._finite = torch.ones((), dtype=torch.bool, device=hidden.device)
        none = torch.zeros(1, 0, dtype=torch.bool, device=hidden.device)
        self._root_nodes = Nodes(hidden, self._log_probs(hidden), none)

    def start(self) -> Nodes:
        return self._root_nodes

    def candidates(self, depth: int) -> Int64[Tensor, " Vd"]:
        return self._drafter.ids

    def score(self, state: Nodes, depth: int) -> Float[Tensor, "N Vd"]:
        return state.log_probs

    def best(self, state: Nodes, depth: int) -> Best:
        values, columns = state.log_probs.max(dim=-1)
        return self._drafter.ids[columns], values, columns

    def top(self, state: Nodes, depth: int, count: int) -> Top:
        count = min(count, state.log_probs.shape[-1])
        values, columns, _ = candidate_select(state.log_probs, count)
        return self._drafter.ids[columns], values, columns

    def sample(
        self, state: Nodes, depth: int, draws: Draws, count: int, temperature: float | None
    ) -> Sample:
        """Drafts drawn without replacement from the law over the draft vocabulary."""
        rows, ids = self.score(state, depth), self._drafter.ids
        columns, law = draws.drafts(rows, depth, min(count, rows.shape[-1]), temperature)
        return Sample(ids[columns], rows.gather(-1, columns), columns, law, ids)

    def advance(
        self, state: Nodes, depth: int, parent: Int64[Tensor, " M"], token: Int64[Tensor, " M"]
    ) -> Nodes:
        """One forward for all M nodes, which do not see each other. Nodes of a depth share one
        position.
        """
        with self._lend("draft"), torch.no_grad():
            earlier, count = self._cache.length - self._text, len(token)
            seen = torch.zeros(count, earlier + count, dtype=torch.bool, device=token.device)
            seen[:, : state.seen.shape[1]] = state.seen[parent]
            seen[:, earlier:].fill_diagonal_(True)
            above = state.hidden[parent]
            positions = torch.full_like(token, self._start - 1 + depth)
            mask = above.new_zeros(count, self._text + earlier + count)
            mask[:, self._text :].masked_fill_(~seen, torch.finfo(mask.dtype).min)
            hidden = self._drafter.forward(above, token, positions, mask, self._cache)
            return Nodes(hidden, self._log_probs(hidden), seen)

    def _log_probs(self, hidden: Float[Tensor, "N H"]) -> Float[Tensor, "N Vd"]:
        logits = self._drafter.logits(hidden)
        self._finite = self._finite & torch.isfinite(logits.sum(dtype=torch.float64))
        return logits.log_softmax(dim=-1)

    def one(self, request: int) -> EagleScorer:
        return self

    def finite(self) -> Bool[Tensor, ""]:
        return self._finite

    def fault(self, request: int) -> str:
        return "draft logits of a forward while the tree was built: NaN or infinite values"
