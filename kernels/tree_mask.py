"""Visibility of nodes in a draft tree, and the additive attention mask of the verification pass."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.kernels.backend import use_triton


def visibility(parents: Int64[Tensor, "*R n"]) -> Bool[Tensor, "*R n n"]:
    """Entry (i, j) is true if j is i or an ancestor of i. parents: -1 for the root (node 0) and for
    padding, which sees the root.

    Pointer doubling: after s steps a row has its 2^s nearest ancestors, so the number of tensor
    operations depends only on the number of nodes, and nothing is transferred to the host.
    """
    size = parents.shape[-1]
    seen = torch.eye(size, dtype=torch.bool, device=parents.device)
    seen = seen.expand(*parents.shape, size)
    jump = parents.clamp(min=0)
    for _ in range((size - 1).bit_length()):
        if jump.dim() == 1:  # indexing is faster than gather
            seen = seen | seen[jump]
        else:
            seen = seen | seen.gather(-2, jump.unsqueeze(-1).expand_as(seen))
        jump = jump.gather(-1, jump)
    return seen


def tree_mask(
    parents: Int64[Tensor, " n"], past: int, dtype: torch.dtype
) -> Float[Tensor, "1 1 n {past}+n"]:
    """Additive mask: 0 where visible, the dtype's minimum where hidden.

    Every node sees the context of `past` tokens, its ancestors and itself. Additive, because a
    boolean 4-D mask is silently wrong under eager attention.
    """
    if use_triton(parents):
        from dartree_exp.kernels.tree_mask_triton import tree_mask_triton

        return tree_mask_triton(parents, past, dtype)
    return tree_mask_torch(parents, past, dtype)


def tree_mask_torch(
    parents: Int64[Tensor, " n"], past: int, dtype: torch.dtype
) -> Float[Tensor, "1 1 n {past}+n"]:
    """The reference implementation of `tree_mask`, for any device."""
    size = parents.shape[0]
    mask = torch.zeros(1, 1, size, past + size, dtype=dtype, device=parents.device)
    mask[0, 0, :, past:].masked_fill_(~visibility(parents), torch.finfo(dtype).min)
    return mask
