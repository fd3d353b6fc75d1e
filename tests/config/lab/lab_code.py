"""The tree and the head of `lab_parts`."""

from typing import Any, Self

import torch
from lab_parts import TanhConfig
from torch import Tensor

from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.trees.levelwise import LevelwiseBuilder


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
