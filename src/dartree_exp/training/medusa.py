"""Medusa heads under training (arXiv 2401.10774, section 2.2.1), with the target frozen: Medusa-1.

Slot k of a block is head k at the position before the anchor, which says the token at anchor + k +
1. The heads share the target's vocabulary head.
"""

from __future__ import annotations

from torch import Tensor

from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.training.batches import Batch, picked


def medusa_hidden(heads: MedusaHeads, batch: Batch, slots: Tensor | None = None) -> Tensor:
    """[S, A, R, H] of slots int64 [S, A, R] (None: all). The batch has final hidden states."""
    assert batch.finals is not None, "config.training.needs_finals"
    return picked(heads(batch.finals.before().float()), slots)
