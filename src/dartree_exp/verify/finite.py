"""The check for NaN and infinite logits."""

from __future__ import annotations

import torch
from torch import Tensor


class NonFiniteLogitsError(ValueError):
    """NaN or infinite logits; the message names the model, the round and the sample."""


def check_finite(logits: Tensor, whose: str, where: str) -> None:
    """Raise `NonFiniteLogitsError` if any logit is NaN or infinite, by one reduction without a
    mask. where: `round 3, sample 'x'`.
    """
    if not torch.isfinite(logits.sum(dtype=torch.float64)):
        bad = int((~torch.isfinite(logits)).sum())
        raise NonFiniteLogitsError(
            f"{whose} logits: {bad} of {logits.numel()} values are NaN or infinite ({where})"
        )
