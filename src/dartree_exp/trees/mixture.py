"""Mixture scoring: a latent category of the block is summed out along each path (DBLast, arXiv
2608.05448).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.interfaces import Block
from dartree_exp.trees.corrected import CorrectedScorer
from dartree_exp.trees.menu import MenuTable, Scoring, step_log_probs
from dartree_exp.trees.spec import LATENT_SAMPLED, LATENT_SUMMED

# log p(z | path) of each node.
State = Float[Tensor, "*R N Z"]


class LatentMixture(Protocol):
    """A head with Z categories, each of which gives every slot a distribution of its own."""

    def log_prior(
        self, hidden: Float[Tensor, "*R D H"], roots: Int64[Tensor, "*R"]
    ) -> Float[Tensor, "*R Z"]: ...

    def log_probs(
        self, block: Block, latent: Int64[Tensor, "*R"] | None = None
    ) -> Float[Tensor, "*R D Z Vd"]: ...


class MixtureScorer(CorrectedScorer):
    """The probability of a token after a path is sum_z p(z | path) q(token | z), over the drafting
    vocabulary. The trees of all categories are thus one prefix tree: a path's score is the
    logarithm of sum_z p(z) prod q(token | z), which is exact.

    The candidates of a depth are the K best of its marginal, sum_z p(z) q(token | z). With one
    category (`one z a block`, as published) all depths are independent.
    """

    @classmethod
    def of_round(
        cls, block: Block, roots: int | tuple[int, ...], head: LatentMixture, how: Scoring
    ) -> MixtureScorer:
        ids = torch.tensor(roots, device=block.logits.device)
        prior = head.log_prior(block.hidden, ids)
        if how.latent == LATENT_SUMMED:
            return cls(block, roots, head, how.count, prior, head.log_probs(block))
        if how.latent == LATENT_SAMPLED:
            assert how.draws is not None
            latent = how.draws.draft(prior, 0)  # of the root's depth: no draft uses it
        else:
            latent = prior.argmax(-1)
        certain = torch.zeros_like(prior[..., :1])
        return cls(block, roots, head, how.count, certain, head.log_probs(block, latent))

    def __init__(
        self,
        block: Block,
        roots: int | tuple[int, ...],
        head: LatentMixture,
        candidates: int | str,
        prior: Float[Tensor, "*R Z"],
        log_probs: Float[Tensor, "*R D Z Vd"],
    ) -> None:
        marginal = (prior[..., None, :, None] + log_probs).logsumexp(-2)
        super().__init__(
            MenuTable(replace(block, logits=marginal), candidates, "vocab"), roots, head
        )
        self.path_dependent = prior.shape[-1] > 1
        self._parts = block, candidates, prior, log_probs
        self._prior = prior.unsqueeze(-2)
        self._whole = log_probs.unbind(-3)  # by depth, [*R, Z, Vd]
        self._chosen: dict[int, Float[Tensor, "*R Z K"]] = {}
        self.watch(marginal)

    def one(self, request: int) -> MixtureScorer:
        assert isinstance(self.roots, tuple)
        block, candidates, prior, log_probs = self._parts
        return MixtureScorer(
            block.one(request),
            self.roots[request],
            self._head,
            candidates,
            prior[request],
            log_probs[request],
        )

    @property
    def drafted(self) -> Float[Tensor, "*R D Vd"]:
        return self._parts[0].logits

    def start(self) -> State:
        return self._prior

    def rows(self, state: State, depth: int) -> Float[Tensor, "*R N K"]:
        each = self._whole[depth - 1]
        if not self.table.whole:
            if depth not in self._chosen:
                self._chosen[depth] = self.chosen(each, depth)
            each = self._chosen[depth]
        return (state.unsqueeze(-1) + each.unsqueeze(-3)).logsumexp(-2).clamp(max=0)

    def advance(
        self, state: State, depth: int, parent: Int64[Tensor, "*R M"], token: Int64[Tensor, "*R M"]
    ) -> Float[Tensor, "*R M Z"]:
        column = torch.searchsorted(self.table.column_ids, token.contiguous())
        count = state.shape[-1]
        each = self._whole[depth - 1].gather(
            -1, column.unsqueeze(-2).expand(*column.shape[:-1], count, -1)
        )
        before = state.gather(-2, parent.unsqueeze(-1).expand(*parent.shape, count))
        return step_log_probs(before + each.mT)
