"""The parts of `lab_parts`."""

from dataclasses import replace
from typing import Any, Self

import torch
from lab_parts import TanhConfig
from torch import Tensor

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.engines.eager import EagerEngine
from dartree_exp.interfaces import Limits, RoundView, Scorer
from dartree_exp.trees.levelwise import LevelwiseBuilder
from dartree_exp.trees.marginal import MarginalScorer
from dartree_exp.verify.exact import ExactMatch


class TaperedBuilder(LevelwiseBuilder):
    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        widths: list[int] = []
        while budget and len(widths) < depths:
            widths.append(min(-(-budget // 2), count ** (len(widths) + 1)))
            budget -= widths[-1]
        return widths


class TanhHead(MarkovHead):
    """correction = W2 tanh(W1[x]), x the token before."""

    key_prefix = "tanh_head."

    @classmethod
    def from_config(
        cls, config: Any, hidden_size: int, vocab_size: int, output_size: int | None = None
    ) -> Self:
        return cls(hidden_size, vocab_size, config.lab_rank, output_size)

    def config(self, confidence: Any = None) -> Any:
        return TanhConfig(self.rank)

    def correction(self, prepared: Any, state: Tensor, depth: int) -> Tensor:
        return super().correction(prepared, torch.tanh(state), depth)

    def codes(self, hidden: Tensor, tokens: Tensor, slots: Tensor | None = None) -> Tensor:
        return torch.tanh(super().codes(hidden, tokens, slots))


class MyScorer(MarginalScorer):
    pass


class HalfBudget(FixedBudget):
    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        return replace(view.limits, nodes=view.limits.nodes // 2)


class FirstDraw(ExactMatch):
    pass


class PlainEngine(EagerEngine):
    pass
