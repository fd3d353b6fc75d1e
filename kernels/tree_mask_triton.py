"""The tree mask on a GPU: every row follows its own ancestors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 1024


@triton.jit
def tree_mask_rows(parents, mask, past, columns, HIDDEN: tl.constexpr, TILE: tl.constexpr):
    """One tile of one node's row; grid (nodes, tiles)."""
    node = tl.program_id(0)
    tile = tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    visible = column < past
    if (tile + 1) * TILE > past:
        ancestor = node.to(tl.int64)
        while ancestor >= 0:
            visible = visible | (column == past + ancestor)
            ancestor = tl.load(parents + ancestor)
    value = tl.where(visible, 0.0, HIDDEN)
    tl.store(
        mask + node.to(tl.int64) * columns + column,
        value.to(mask.dtype.element_ty),
        mask=column < columns,
    )


def tree_mask_triton(parents: Tensor, past: int, dtype: torch.dtype, tile: int = _TILE) -> Tensor:
    """`tree_mask` in Triton. tile: a power of two, for tests."""
    size = parents.shape[0]
    mask = torch.empty(1, 1, size, past + size, dtype=dtype, device=parents.device)
    grid = (size, triton.cdiv(past + size, tile))
    tree_mask_rows[grid](
        parents.contiguous(), mask, past, past + size, HIDDEN=torch.finfo(dtype).min, TILE=tile
    )
    return mask
