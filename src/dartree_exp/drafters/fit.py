"""Does a drafter checkpoint belong to this target? Asked before anything is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.drafters.dflash_config import CheckpointError, DFlashConfig

if TYPE_CHECKING:
    from dartree_exp.models.target import Target


def check_fit(config: DFlashConfig, target: Target) -> None:
    """Raises `CheckpointError` naming key, value and what the target allows."""
    rows, hidden = target.embed_weight.shape
    last = target.num_layers - 1
    wrong = [
        (f"hidden_size = {config.hidden_size}", f"{hidden}", config.hidden_size == hidden),
        (f"vocab_size = {config.vocab_size}", f"{rows}", config.vocab_size == rows),
        (
            f"num_target_layers = {config.num_target_layers}",
            f"{target.num_layers}",
            config.num_target_layers == target.num_layers,
        ),
        (
            f"target_layer_ids = {list(config.target_layer_ids)}",
            f"ids in 0..{last - 1}",
            all(0 <= i < last for i in config.target_layer_ids),
        ),
        (f"mask_token_id = {config.mask_token_id}", f"an id in 0..{rows - 1}", 0 <= config.mask_token_id < rows),
    ]
    for value, allowed, fits in wrong:
        if not fits:
            raise CheckpointError(f"drafter does not fit target {target.name}: {value}, allowed: {allowed}")
