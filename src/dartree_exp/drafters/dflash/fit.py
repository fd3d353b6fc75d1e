"""Checks that a drafter checkpoint fits the target, before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.config import CheckpointError, DFlashConfig, check_layers

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

_ROUNDING = 0.2  # allowed relative difference, for a quantised target; unrelated tables: 1.4


def check_fit(config: DFlashConfig, target: Target) -> None:
    """Raise CheckpointError with the key, its value and what the target allows."""
    rows, hidden = target.embed_weight.shape
    wrong = [
        (f"hidden_size = {config.hidden_size}", f"{hidden}", config.hidden_size == hidden),
        (f"vocab_size = {config.vocab_size}", f"{rows}", config.vocab_size == rows),
        (
            f"num_target_layers = {config.num_target_layers}",
            f"{target.num_layers}",
            config.num_target_layers in (None, target.num_layers),
        ),
        (
            f"mask_token_id = {config.mask_token_id}",
            f"an id in 0..{rows - 1}",
            0 <= config.mask_token_id < rows,
        ),
    ]
    for value, allowed, fits in wrong:
        if not fits:
            raise CheckpointError(
                f"drafter does not fit target {target.name}: {value}, allowed: {allowed}"
            )
    check_layers(config.target_layer_ids, target.num_layers)


def check_tables(stored: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if a checkpoint's embedding or lm_head is not the target's.

    Compares 256 rows spread over the vocabulary. The copies are not used for drafting.
    """
    for name, copy in stored.items():
        rows = torch.linspace(0, len(copy) - 1, 256).long()
        mine, theirs = own[name][rows.to(own[name].device)].cpu().float(), copy[rows].float()
        if (mine - theirs).norm() > _ROUNDING * mine.norm():
            raise CheckpointError(
                f"{name}: differs from the target's; the drafter was trained for another target"
            )
