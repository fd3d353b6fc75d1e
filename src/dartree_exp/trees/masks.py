"""Attention mask and position ids of a tree's verification pass."""

from __future__ import annotations

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels import tree_mask as kernels


def tree_mask(tree: DraftTree, past: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [1, 1, 1+N, past+1+N]: 0 where visible (context, ancestors, self), finfo.min
    elsewhere.
    """
    return kernels.tree_mask(tree.parents, past, dtype)


def position_ids(tree: DraftTree, start: int) -> Tensor:
    """int64 [1, 1+N]: position of the root (`start`) plus the depth; siblings share a position."""
    return (tree.depths + start)[None]
