"""Random weights from a seed, for the drafters of the toy target."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def fill(module: nn.Module, seed: int) -> None:
    """Norm weights are 1, all others normal(0, 1 / fan-in), drawn in the order of their names."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(module.named_parameters()):
        if "norm" in name:
            weight.fill_(1.0)
        else:
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5)
