"""The average of the weights that is exported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def ema(decay: float) -> Any:
    """The update of `AveragedModel`: an exponential average whose decay grows to `decay`, so that
    the first weights do not stay in it for long.
    """

    @torch.no_grad()
    def update(averages: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        n = int(count)
        torch._foreach_lerp_(averages, current, 1 - min(decay, (n + 1) / (n + 10)))

    return update
