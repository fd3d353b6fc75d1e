"""What one draft forward yields, whatever the drafter."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Block:
    """Drafting slots only, in the order of depth: slot j predicts depth j + 1, in both slot
    layouts.
    """

    hidden: Tensor  # [D, H], final-normed backbone output, in the drafter's dtype
    logits: Tensor  # float32 [D, Vd], base logits over the draft vocabulary
    vocab_ids: (
        Tensor | None
    )  # int64 [Vd], target id of each column, ascending; None = identity (Vd = V)
