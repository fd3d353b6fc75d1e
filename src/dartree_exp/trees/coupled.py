"""Coupled drafting (ours): drafts are scored with the noise of the target's own draw.

    the target draws  argmax_y log p(y) / T + g(y),  g keyed by (seed, sample, position, token id)
    coupled score     log softmax_y (log q(y) / (temper T) + g(y)) / spread

g is known before drafting, so the winner is known as far as q is p. If what the drafter gets wrong
is Gumbel noise of scale `spread`, the softmax is the winner's law given g (max-stability), so a
path's score is the log of its chance. Only the order of drafts changes: `verify=exact` compares
with the same draw as without coupling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.interfaces import (
    Best,
    Block,
    Builder,
    CorrectionHead,
    DraftTree,
    Draws,
    Limits,
    Scorer,
    Top,
)
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.menu import look_up

Pair = tuple[float, float]
AS_TRAINED: Pair = (1.0, 1.0)
FILTERED = 1e3
"""Subtracted where the target's top-k or top-p would leave a token out, if p were q: such tokens
come after all others.
"""


@dataclass(frozen=True)
class Coupling:
    """(temper, spread) by temperature, as `training/temper.py` fits them; (1, 1) without a fit."""

    pairs: Mapping[float, Pair] = field(default_factory=dict)

    def at(self, temperature: float) -> Pair:
        """Those of the nearest temperature that was fitted."""
        if not self.pairs:
            return AS_TRAINED
        return self.pairs[min(self.pairs, key=lambda t: (abs(t - temperature), t))]

    def weights(self, draws: Draws, device: torch.device) -> Float[Tensor, "2 R"]:
        """What log q and g are multiplied by; 1 and 0 for a greedy target."""
        found = []
        for request, temperature in enumerate(draws.temperatures):
            if draws.greedy(request):
                found.append((1.0, 0.0))
                continue
            temper, spread = self.at(temperature)
            found.append((1.0 / (temper * temperature * spread), 1.0 / spread))
        return torch.tensor(found, device=device).T

    def filter(
        self, scores: Float[Tensor, "R n K"], draws: Draws, logits: Float[Tensor, "R n K"]
    ) -> None:
        """Lower the scores of what the target's filters would not keep of the drafter's logits."""
        for request, rows in enumerate(logits):
            temperature = draws.temperatures[request]
            if draws.greedy(request):
                continue
            keep = draws.kept(request, rows, self.at(temperature)[0] * temperature)
            if keep is not None:
                scores[request] -= torch.where(keep, 0.0, FILTERED)


def all_greedy(draws: Draws) -> bool:
    """Whether no request has noise."""
    return all(draws.greedy(request) for request in range(len(draws.start)))


def coupled_block(
    block: Block, head: CorrectionHead | None, draws: Draws, coupling: Coupling
) -> tuple[Block, CorrectionHead | None]:
    """A block and a head whose scores are coupled, for scorers that add corrections to base logits.

    The candidates of a depth are then those with the best perturbed base logits.
    """
    if all_greedy(draws):
        return block, head
    ids = block.vocab_ids
    size = block.logits.shape[-1] if ids is None else int(ids[-1]) + 1
    depths = range(1, block.logits.shape[-2] + 1)
    noise = torch.stack([draws.target_noise(depth, size) for depth in depths], 1)  # [R, D, size]
    noise = noise.to(block.logits)
    of_q, of_noise = coupling.weights(draws, block.logits.device)
    logits = block.logits * of_q[:, None, None]
    logits += (noise if ids is None else noise[..., ids]) * of_noise[:, None, None]
    coupling.filter(logits, draws, block.logits)
    coupled = _CoupledBlock(block.hidden, logits, block.vocab_ids, of_q)
    return coupled, None if head is None else _Weighted(head)


@dataclass(frozen=True)
class _CoupledBlock(Block):
    """A block with what the corrections of each request are multiplied by."""

    of_q: Float[Tensor, "*R"]

    def one(self, request: int) -> _CoupledBlock:
        hidden, logits = self.hidden[request], self.logits[request]
        return _CoupledBlock(hidden, logits, self.vocab_ids, self.of_q[request])


class _Weighted:
    """A head whose corrections are multiplied as the logits of a `_CoupledBlock` were."""

    def __init__(self, head: CorrectionHead) -> None:
        self._head, self.start = head, head.start
        self.pure_draft_prefix_len, self.last_token = head.pure_draft_prefix_len, head.last_token

    def prepare(self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]) -> Any:
        assert isinstance(block, _CoupledBlock)
        return self._head.prepare(block, candidate_ids), block.of_q.reshape(-1, 1, 1)

    def correction(
        self, prepared: Any, state: Float[Tensor, "N S"], depth: int
    ) -> Float[Tensor, "N K"]:
        of_head, of_q = prepared
        rows = self._head.correction(of_head, state, depth)
        return (rows.view(len(of_q), -1, rows.shape[-1]) * of_q).view_as(rows)

    def advance(
        self,
        prepared: Any,
        state: Float[Tensor, "N S"],
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        return self._head.advance(prepared[0], state, depth, parent, token)


class CoupledBuilder:
    """A builder that reads coupled scores of any scorer, over its own candidates."""

    def __init__(self, builder: Builder, coupling: Coupling) -> None:
        self.builder, self._coupling = builder, coupling

    def around(self, builder: Builder) -> CoupledBuilder:
        """The same for another builder."""
        return CoupledBuilder(builder, self._coupling)

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        assert draws is not None
        if scorer.num_drafts and not all_greedy(draws):
            scorer = CoupledScorer(scorer, draws, self._coupling)
        return self.builder.build(scorer, limits, draws)


class CoupledScorer:
    """A `Scorer` over another one's states and candidates."""

    def __init__(self, inner: Scorer, draws: Draws, coupling: Coupling) -> None:
        self._inner, self._draws, self._coupling = inner, draws, coupling
        self.num_drafts, self.path_dependent = inner.num_drafts, inner.path_dependent
        self.excludes = getattr(inner, "excludes", False)
        self.root = inner.root
        self.start, self.candidates, self.advance = inner.start, inner.candidates, inner.advance
        self.finite, self.fault = inner.finite, inner.fault
        self._weights = coupling.weights(draws, inner.root.device)
        self._noise: dict[int, Tensor] = {}  # by depth, [R, 1, K]

    def one(self, request: int) -> CoupledScorer:
        return CoupledScorer(self._inner.one(request), self._draws.one(request), self._coupling)

    def score(self, state: Any, depth: int) -> Float[Tensor, "*R N K"]:
        rows = self._inner.score(state, depth)
        each = rows if rows.dim() == 3 else rows[None]
        of_q, of_noise = self._weights[..., None, None].to(rows.dtype)
        scores = each * of_q + self._noise_at(depth, each) * of_noise
        self._coupling.filter(scores, self._draws, each)
        scores = torch.log_softmax(scores, -1).masked_fill(each.isneginf(), -torch.inf)
        return scores.view_as(rows)

    def best(self, state: Any, depth: int) -> Best:
        tokens, log_probs, ranks = self.top(state, depth, 1)
        return tokens[..., 0], log_probs[..., 0], ranks[..., 0]

    def top(self, state: Any, depth: int, count: int) -> Top:
        scores = self.score(state, depth)
        log_probs, ranks = stable_topk(scores, min(count, scores.shape[-1]))
        return look_up(self.candidates(depth), ranks), log_probs, ranks

    def _noise_at(self, depth: int, rows: Float[Tensor, "R N K"]) -> Float[Tensor, "R 1 K"]:
        if depth not in self._noise:
            ids: Int64[Tensor, "R K"] = self.candidates(depth).view(len(rows), rows.shape[-1])
            noise = self._draws.target_noise(depth, int(ids.max()) + 1).to(rows)
            self._noise[depth] = noise.gather(-1, ids).unsqueeze(-2)
        return self._noise[depth]
