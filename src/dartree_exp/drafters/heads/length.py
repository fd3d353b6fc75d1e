"""AdaFlash's length head (arXiv 2607.19223): how much of a block is worth verifying, by the hidden
states of its slots.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor, nn


class LengthHead(nn.Module):
    """share = sigmoid(out(z + silu(res z))) with z = silu(down [mean of the slots ; last slot]).

    The share is trained as (accepted drafts + 1) / b, so share * b is a number of tokens. Names and
    sizes are those of the released checkpoints; that the activation is SiLU, as in the backbone, is
    our choice.

    block_size: b, slots of a block as trained, the root's slot included.
    """

    key_prefix = "thresh_head_two_model."

    def __init__(self, hidden_size: int, width: int, block_size: int) -> None:
        super().__init__()
        self.width, self.block_size = width, block_size
        self.down = nn.Linear(2 * hidden_size, width)
        self.res = nn.ModuleList([nn.Linear(width, width)])
        self.out = nn.Linear(width, 1)

    def forward(self, hidden: Float[Tensor, "*R D H"]) -> Float[Tensor, "*R"]:
        """The share in 0..1. hidden: of the drafting slots, by depth."""
        hidden = hidden.to(self.down.weight.dtype)
        z = F.silu(self.down(torch.cat([hidden.mean(-2), hidden[..., -1, :]], dim=-1)))
        for layer in self.res:
            z = z + F.silu(layer(z))
        return torch.sigmoid(self.out(z)).squeeze(-1)

    def tokens(self, hidden: Float[Tensor, "*R D H"]) -> Float32[Tensor, "*R"]:
        """The tokens that a round with this block is expected to advance, bonus token included."""
        return self(hidden).float() * self.block_size
