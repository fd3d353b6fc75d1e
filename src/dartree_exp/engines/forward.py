"""The interface of a target's forward: how token rows become hidden states and logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.engines.cache import TargetCache

HALF = (torch.bfloat16, torch.float16)
"""Dtypes in which the order of additions can change the ids."""

Read = tuple[Float[Tensor, "n H"], Float[Tensor, "n features"] | None]
"""Final-normed hidden states, and the tapped layers' outputs, concatenated (None without taps)."""


@dataclass(frozen=True)
class Product:
    """A product with a weight of the model, as the forward computes it: [n, columns] -> [n, _]."""

    columns: int
    of: Callable[[Tensor], Tensor]


class TargetForward(Protocol):
    """One request at a time; all tensors on the model's device and, unless said, in its dtype."""

    row_invariant: bool  # settable, see `Target.row_invariant`
    copied: bool  # whether a single row is computed among copies if `row_invariant`; settable

    def cache(self, capacity: int) -> TargetCache:
        """An empty cache for `capacity` rows, which only this forward can use."""

    def mask(self, parents: Int64[Tensor, " n"], past: int) -> Tensor:
        """What the rows of a tree see, as `hidden` reads it. parents: -1 at the root and padding.
        past: rows in the cache.
        """

    def hidden(
        self,
        tokens: Int64[Tensor, " n"],
        positions: Int64[Tensor, " n"],
        mask: Tensor | None,
        cache: TargetCache,
        taps: Sequence[int],
    ) -> Read:
        """Read rows after the cached ones; all of them enter the cache. mask: None for causal rows.
        taps: layers that exist, -1 for the embedding.
        """

    def logits(self, hidden: Float[Tensor, "n H"]) -> Float[Tensor, "n V"]: ...

    def products(self) -> list[Product]:
        """One of each weight shape, the head included; for the self-test of row invariance."""
