"""A preallocated key/value cache that can be rewound to any ancestor-closed set of rows.

The only module that uses a cache class of transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from dartree_exp.errors import UserError


class CacheOverflowError(RuntimeError):
    """More rows were written than the cache was allocated for."""


def check_room(rows: int, capacity: int) -> None:
    """Raise CacheOverflowError if the rows do not fit."""
    if rows > capacity:
        raise CacheOverflowError(f"target cache has {capacity} rows, {rows} are needed")


class _Layer(CacheLayerMixin):
    """One layer's view [1, kv_heads, capacity, head_dim] of the storage; rows [0, length) are
    valid.
    """

    is_sliding = False
    is_croppable = False
    keys: Tensor  # never None, unlike in the library
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys = keys
        self.values = values
        self.is_initialized = True
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object):
        """Write the new rows in place; returns views of all rows, each [1, kv_heads, length,
        head_dim]. Raises CacheOverflowError.
        """
        start, end = self.length, self.length + key_states.shape[-2]
        check_room(end, self.keys.shape[-2])
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.keys.shape[-2]


class TargetCache:
    """Rows of one request in preallocated storage: tensors [..., capacity or more, width].

    Storage is one tensor of each kind for all layers, so a commit is one gather for each.
    """

    def __init__(self, capacity: int, *storage: Tensor) -> None:
        self.capacity = capacity
        self._storage = storage
        self._length = 0

    @property
    def length(self) -> int:
        """Number of rows in every layer."""
        return self._length

    def _set_length(self, length: int) -> None:
        self._length = length

    def rows(self) -> tuple[Tensor, ...]:
        """Views of all rows [..., length, width], of each storage."""
        return tuple(storage[..., : self.length, :] for storage in self._storage)

    def claim(self, rows: int) -> int:
        """Make room for new rows after the last one; returns the first one's index. The caller
        writes them. Raises CacheOverflowError.
        """
        start = self.length
        check_room(start + rows, self.capacity)
        self._set_length(start + rows)
        return start

    def reset(self) -> None:
        """Remove all rows; the storage is kept."""
        self._set_length(0)

    def keep(self, prefix_length: int, rows: Tensor | Sequence[int] | None = None) -> None:
        """Keep rows [0, prefix_length) and `rows`, compacted in place; remove all others.

        rows: int64 [m], indices in the cache, strictly ascending, each in [prefix_length, length);
        they need not be contiguous (an accepted tree path seldom is). None keeps only the prefix.
        Keys already include their rotary position, so rows can be moved; the caller must ensure
        that a row's new index is the position it was computed for. Raises ValueError for a prefix
        or rows out of range or order.
        """
        length = self.length
        if not 0 <= prefix_length <= length:
            raise ValueError(f"prefix_length {prefix_length} is outside the cache's {length} rows")
        wanted = [] if rows is None else rows.tolist() if isinstance(rows, Tensor) else list(rows)
        previous = prefix_length - 1
        for row in wanted:
            if not previous < row < length:
                raise ValueError(
                    f"rows {wanted} must ascend strictly within [{prefix_length}, {length})"
                )
            previous = row
        # Rows already at their place are not copied: a chain's commit moves nothing.
        settled = 0
        while settled < len(wanted) and wanted[settled] == prefix_length + settled:
            settled += 1
        if moving := wanted[settled:]:
            start = prefix_length + settled
            index = torch.tensor(moving, device=self._storage[0].device)
            for storage in self._storage:
                # index_select copies first, so overlapping source and destination are safe.
                storage[..., start : start + len(moving), :] = storage.index_select(-2, index)
        self._set_length(prefix_length + len(wanted))


class LibraryCache(TargetCache):
    """Keys and values of the library's modules: one tensor [layers, 2, 1, kv_heads, capacity,
    head_dim].
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        storage = torch.empty(
            (layers, 2, 1, kv_heads, capacity, head_dim), dtype=dtype, device=device
        )
        super().__init__(capacity, storage)
        self._layers = [_Layer(storage[i, 0], storage[i, 1]) for i in range(layers)]
        self.library = Cache(layers=[*self._layers])

    @property
    def length(self) -> int:
        return self._layers[0].length

    def _set_length(self, length: int) -> None:
        for layer in self._layers:
            layer.length = length


class UnsupportedTargetError(UserError):
    """A model that this program cannot verify trees with; the message gives the reason."""


FAMILIES = ("llama", "qwen3")
"""`model_type` values whose forward supports a 4-D mask, explicit positions and this cache."""

_UNSTABLE_ROPE = ("dynamic", "longrope")
# Their frequencies depend on the longest input so far, so keys cached before and after a threshold
# differ.


def check_rewindable(config: object) -> None:
    """Raise UnsupportedTargetError for a cache that cannot be rewound or an unknown forward.
    config: of transformers.
    """
    family = getattr(config, "model_type", "?")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    unknown = sorted(kinds - {"full_attention", "sliding_attention"})
    if unknown:
        raise UnsupportedTargetError(
            f"target of type {family!r} has {', '.join(unknown)} layers: their recurrent state "
            "cannot be rewound exactly to an accepted tree path"
        )
    if family not in FAMILIES:
        raise UnsupportedTargetError(
            f"target of type {family!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type in _UNSTABLE_ROPE:
        raise UnsupportedTargetError(
            f"target uses {rope_type!r} rotary scaling: cached keys depend on the longest input "
            "seen, so a rewound cache differs from a new one"
        )


def head_shape(config: Any) -> tuple[int, int, int]:
    """Query heads, key heads and the size of a head, of a library's configuration."""
    heads = int(config.num_attention_heads)
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads, int(config.num_key_value_heads or heads), int(dim)


def smallest_window(config: object) -> int | None:
    """Smallest sliding window of any layer; None if every layer attends to all rows."""
    if "sliding_attention" not in (getattr(config, "layer_types", None) or []):
        return None
    return int(getattr(config, "sliding_window", 0) or 0)
