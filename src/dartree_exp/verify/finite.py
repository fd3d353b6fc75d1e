"""NaN and infinite logits are named, not decoded."""

from __future__ import annotations

import torch
from torch import Tensor


class NonFiniteLogitsError(ValueError):
    """NaN or infinite logits; the message names whose logits, which round and which sample."""


def check_finite(logits: Tensor, whose: str, where: str) -> None:
    """Raise `NonFiniteLogitsError` if any logit is NaN or infinite (one reduction, no mask is
    materialised). where: `round 3, sample 'x'`.
    """
    if not torch.isfinite(logits.sum(dtype=torch.float64)):
        bad = int((~torch.isfinite(logits)).sum())
        raise NonFiniteLogitsError(
            f"{whose} logits: {bad} of {logits.numel()} values are NaN or infinite ({where})"
        )
