"""Adapters that run parts written for one request on several, by looping and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftTree, Sample, SamplingScorer

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer


class OneRequestBuilder(Protocol):
    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """A tree without request axis; `scorer` has none either."""


class EachRequest:
    """A `Builder` made of one for a single request."""

    def __init__(self, builder: OneRequestBuilder) -> None:
        self._builder = builder

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        requests = range(scorer.root.shape[0])
        return DraftTree.stack(
            [self._builder.build(scorer.one(r), limits, draws) for r in requests]
        )


class EachScorer:
    """A `Scorer` made of one scorer per request, all with the same depths and candidates."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers
        self.num_drafts = scorers[0].num_drafts
        self.path_dependent = scorers[0].path_dependent
        self.excludes = any(getattr(scorer, "excludes", False) for scorer in scorers)
        self.root = torch.stack([scorer.root for scorer in scorers])

    def start(self) -> list[Any]:
        return [scorer.start() for scorer in self._scorers]

    def candidates(self, depth: int) -> Tensor:
        return torch.stack([scorer.candidates(depth) for scorer in self._scorers])

    def score(self, state: list[Any], depth: int) -> Tensor:
        pairs = zip(self._scorers, state, strict=True)
        return torch.stack([scorer.score(own, depth) for scorer, own in pairs])

    def best(self, state: list[Any], depth: int) -> tuple[Tensor, Tensor, Tensor]:
        pairs = zip(self._scorers, state, strict=True)
        return _stacked([scorer.best(own, depth) for scorer, own in pairs])

    def top(self, state: list[Any], depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        pairs = zip(self._scorers, state, strict=True)
        return _stacked([scorer.top(own, depth, count) for scorer, own in pairs])

    def sample(
        self, state: list[Any], depth: int, draws: Draws, count: int, temperature: float | None
    ) -> Sample:
        found = [
            cast(SamplingScorer, scorer).sample(own, depth, draws.one(r), count, temperature)
            for r, (scorer, own) in enumerate(zip(self._scorers, state, strict=True))
        ]
        return Sample(*(torch.stack(parts) for parts in zip(*found, strict=True)))

    def advance(self, state: list[Any], depth: int, parent: Tensor, token: Tensor) -> list[Any]:
        rows = zip(self._scorers, state, parent, token, strict=True)
        return [scorer.advance(own, depth, p, t) for scorer, own, p, t in rows]

    def finite(self) -> Tensor:
        return torch.stack([scorer.finite() for scorer in self._scorers])

    def fault(self, request: int) -> str:
        return self._scorers[request].fault(0)

    def one(self, request: int) -> Scorer:
        return self._scorers[request]


def _stacked(found: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    first, second, third = (torch.stack(parts) for parts in zip(*found, strict=True))
    return first, second, third
