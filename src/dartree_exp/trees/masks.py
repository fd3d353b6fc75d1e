"""Position ids of a tree's verification pass."""

from __future__ import annotations

from jaxtyping import Int64
from torch import Tensor

from dartree_exp.interfaces import DraftTree


def position_ids(tree: DraftTree, start: int) -> Int64[Tensor, "1 n"]:
    """Position of the root (`start`) plus the depth; siblings share a position."""
    return (tree.depths + start)[None]
