"""Type and range checks for values of a checkpoint's `config.json`. Does not import torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dartree_exp.errors import UserError
from dartree_exp.records.reading import UnreadableError, read_object

C = TypeVar("C")

SIZES = {
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1 << 10,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 14,
    "vocab_size": 1 << 24,
    "block_size": 1 << 12,
    "num_target_layers": 1 << 12,
    "max_position_embeddings": 1 << 31,
    "emb_dim": 1 << 18,
    "gru_hidden_dim": 1 << 18,
    "markov_rank": 1 << 18,
    "inner_dim": 1 << 18,
    "thresh_head_bottleneck_dim": 1 << 18,
    "num_latents": 1 << 12,
    "latent_rank": 1 << 18,
    "draft_vocab_size": 1 << 24,
    "medusa_num_heads": 1 << 8,
    "medusa_num_layers": 1 << 8,
}
"""Upper bounds: far above any drafter, but small enough that no check fills the memory."""


class CheckpointError(UserError, ValueError):
    """A drafter checkpoint that cannot be used; the message has key, value and what is allowed."""


def check_size(key: str, value: object) -> None:
    """Raise CheckpointError unless a size of SIZES is an integer from 1 to its largest value."""
    size = check_integer(key, value)
    if size < 1:
        raise CheckpointError(f"{key} = {shown(value)}: must be at least 1")
    if size > SIZES[key]:
        raise CheckpointError(f"{key} = {shown(value)}: must be at most {SIZES[key]}")


def check_integer(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(f"{key} = {shown(value)}: must be an integer")
    return value


def positive(key: str, value: object) -> float:
    """A finite number above 0. Raises CheckpointError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise CheckpointError(f"{key} = {shown(value)}: must be a positive number")
    try:
        return float(value)
    except OverflowError:
        raise CheckpointError(f"{key} = {shown(value)}: must be a positive number") from None


def check_heads(heads: int, kv_heads: int, head_dim: int) -> None:
    """Raise CheckpointError for attention heads that cannot be grouped or rotated."""
    if heads % kv_heads:
        raise CheckpointError(
            f"num_attention_heads = {heads}: must be a multiple of num_key_value_heads = {kv_heads}"
        )
    if head_dim % 2:
        raise CheckpointError(f"head_dim = {head_dim}: must be even (rotary positions)")


def read_checked(folder: Path, parse: Callable[[dict[str, Any]], C]) -> C:
    """What `parse` makes of a folder's `config.json`. Raises CheckpointError with the folder and
    the reason.
    """
    try:
        return parse(read_object(folder / "config.json"))
    except UnreadableError as error:
        raise CheckpointError(f"drafter {folder}: no readable config.json: {error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def flag(key: str, value: object) -> bool:
    """true or false; null is false. Raises CheckpointError."""
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"{key} = {shown(value)}: must be true or false")
    return bool(value)


def section(raw: dict[str, Any], key: str) -> dict[str, Any]:
    """An object in the config, {} if absent or null. Raises CheckpointError."""
    value = raw.get(key)
    if value is not None and not isinstance(value, dict):
        raise CheckpointError(f"{key} = {shown(value)}: must be an object")
    return value or {}


def texts(raw: dict[str, Any], key: str) -> list[str]:
    """A list of strings, [] if absent or null. Raises CheckpointError."""
    value = raw.get(key)
    if value is not None and not (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ):
        raise CheckpointError(f"{key} = {shown(value)}: must be a list of strings")
    return value or []


def integers(key: str, value: object) -> tuple[int, ...]:
    """A list of integers. Raises CheckpointError."""
    if not isinstance(value, list) or not all(
        isinstance(i, int) and not isinstance(i, bool) for i in value
    ):
        raise CheckpointError(f"{key} = {shown(value)}: must be a list of integers")
    return tuple(value)


def shown(value: object) -> str:
    """The value for a message, shortened if long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
