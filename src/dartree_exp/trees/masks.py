"""Attention mask and position ids of a tree's verification pass."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels import tree_mask as kernels


def tree_mask(tree: DraftTree, past: int, dtype: torch.dtype) -> Float[Tensor, "1 1 n keys"]:
    """Additive mask: 0 for visible keys (context, ancestors, self), else finfo.min."""
    return kernels.tree_mask(tree.parents, past, dtype)


def position_ids(tree: DraftTree, start: int) -> Int64[Tensor, "1 n"]:
    """Position of the root (`start`) plus the depth; siblings share a position."""
    return (tree.depths + start)[None]
