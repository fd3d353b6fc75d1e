"""Medusa heads (arXiv 2401.10774, section 2.1). Parameter names are those of the released files."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from dartree_exp.drafters.medusa.config import MedusaConfig


class ResBlock(nn.Module):
    """x + SiLU(W x + b). W and b are zero at first, so that a new head predicts what the target's
    own lm_head does.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows H"]:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """K heads on the target's final-normed hidden state. Head i (from 0) of position t predicts the
    token at t + 2 + i, since the target itself predicts the one at t + 1.

    The released implementation repeats one block, so its blocks of one head have equal weights;
    here each is stored and read by its own name.
    """

    def __init__(self, config: MedusaConfig, hidden_size: int, vocab_size: int) -> None:
        self.config, self.num_layers = config, config.medusa_num_layers
        super().__init__(
            nn.Sequential(
                *(ResBlock(hidden_size) for _ in range(config.medusa_num_layers)),
                *(
                    []
                    if config.medusa_shared_lm_head
                    else [nn.Linear(hidden_size, vocab_size, bias=False)]
                ),
            )
            for _ in range(config.medusa_num_heads)
        )

    def forward(self, hidden: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows K H"]:
        """What each head's vocabulary projection reads."""
        blocks = (head[: self.num_layers] for head in self.each())
        return torch.stack([block(hidden) for block in blocks], dim=-2)

    def projections(self) -> list[Float[Tensor, "V H"]]:
        """The heads' own vocabulary projections; [] if they use the target's."""
        own = [head[-1] for head in self.each() if len(head) > self.num_layers]
        return [linear.weight for linear in own if isinstance(linear, nn.Linear)]

    def each(self) -> list[nn.Sequential]:
        return [head for head in self if isinstance(head, nn.Sequential)]
