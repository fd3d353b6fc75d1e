"""A drafter without drafts: the loop verifies only the root, which is plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dartree_exp.drafters.block_session import BlockDrafter
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import Block


class NoDrafter(BlockDrafter):
    """The papers' AR baseline as a drafter (`method=ar`). It has no state, so it is its own
    session.
    """

    name = "none"
    num_drafts = block_size = 0
    target_layer_ids: tuple[int, ...] = ()
    head = None
    confidence = None
    weights_sha256: str | None = None

    def __init__(self, target: Target) -> None:
        self.max_positions = target.max_positions
        hidden = torch.empty(0, target.hidden_size, dtype=target.dtype, device=target.device)
        self._block = Block(hidden, torch.empty(0, target.vocab_size, device=target.device), None)

    def session(self, prompt_ids: Sequence[int], sampler: object = None) -> NoDrafter:
        return self

    def propose(self, features: Tensor | None, root: int, start: int) -> Block:
        return self._block
