"""Keys and values of the drafter's context: one row per committed token and layer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Keys or values of one layer.
Heads = Float[Tensor, "batch kv_heads rows head_dim"]


class DraftCache:
    """Keys and values per layer [batch, kv_heads, length, head_dim], in one buffer that grows by
    doubling.

    Rows past `length` are scratch: a block's keys and values are written there for the attention of
    its round and not kept (the crop of the published loop).
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        batch: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.length = 0
        self._data = torch.empty(
            layers, 2, batch, kv_heads, 0, head_dim, dtype=dtype, device=device
        )

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows past `length`."""
        need, capacity = self.length + rows, self._data.shape[4]
        if need <= capacity:
            return
        grown = self._data.new_empty(
            *self._data.shape[:4], max(need, 2 * capacity, 64), self._data.shape[5]
        )
        grown[..., : self.length, :] = self._data[..., : self.length, :]
        self._data = grown

    def write(
        self, layer: int, keys: Heads, values: Heads
    ) -> tuple[
        Float[Tensor, "batch kv_heads end head_dim"], Float[Tensor, "batch kv_heads end head_dim"]
    ]:
        """Write new rows after `length`; returns all keys and values up to their end."""
        end = self.length + keys.shape[2]
        self._data[layer, 0, :, :, self.length : end] = keys
        self._data[layer, 1, :, :, self.length : end] = values
        return self._data[layer, 0, :, :, :end], self._data[layer, 1, :, :, :end]

    def rows(self, layer: int) -> tuple[Heads, Heads]:
        """The kept keys and values of a layer, each of `length` rows."""
        return self._data[layer, 0, :, :, : self.length], self._data[layer, 1, :, :, : self.length]
