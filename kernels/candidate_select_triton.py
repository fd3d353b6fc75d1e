"""Candidate selection on a GPU: a tree of tile-wise top-k over unique 64-bit keys.

The upper half of a key is the logit, mapped to an integer with the same order, the lower half the
reversed column. So larger keys are larger logits, or smaller columns among equal logits, and ties
need no second pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dartree_exp.kernels.candidate_select import Selection

# 4 keys per thread: larger tiles take 20 s to compile (the sorting network is unrolled), smaller
# ones need more merge passes.
_TILE = 1024
_WARPS = 8


@triton.jit
def tile_keys(logits, keys, lse, columns, tiles, K: tl.constexpr, TILE: tl.constexpr):
    """Best K keys and the log-sum-exp of one tile of one row; grid (rows, tiles)."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    column = tile * TILE + tl.arange(0, TILE)
    inside = column < columns
    # bf16 must be converted here: otherwise Triton's interpreter is silently wrong.
    value = tl.load(logits + row * columns + column, mask=inside, other=float("-inf")).to(
        tl.float32
    )

    peak = tl.max(value, axis=0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.sum(tl.exp(value - peak), axis=0)
    tl.store(lse + row * tiles + tile, peak + tl.log(total))

    value = tl.where(value == 0.0, 0.0, value)  # -0.0 and 0.0 are equal but have different bits
    bits = value.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = (ordered << 32) + (0x7FFFFFFF - column).to(tl.int64)
    key = tl.where(inside, key, -0x7FFFFFFFFFFFFFFF)
    best = tl.topk(key, K)
    tl.store(keys + (row * tiles + tile) * K + tl.arange(0, K), best)


@triton.jit
def merge_keys(keys, merged, length, tiles, K: tl.constexpr, TILE: tl.constexpr):
    """Best K of one tile of keys; grid (rows, tiles)."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    place = tile * TILE + tl.arange(0, TILE)
    key = tl.load(keys + row * length + place, mask=place < length, other=-0x7FFFFFFFFFFFFFFF)
    tl.store(merged + (row * tiles + tile) * K + tl.arange(0, K), tl.topk(key, K))


def candidate_select_triton(
    logits: Tensor, k: int, logsumexp: bool = False, tile: int = _TILE
) -> Selection:
    """`candidate_select` in Triton. tile: a power of two, at least 2k, for tests."""
    logits = logits.contiguous()
    rows, columns = logits.shape
    width = max(2, triton.next_power_of_2(k))  # tl.topk needs at least two
    tile = max(tile, 2 * width)
    tiles = triton.cdiv(columns, tile)
    keys = torch.empty(rows, tiles * width, dtype=torch.int64, device=logits.device)
    lse = torch.empty(rows, tiles, dtype=torch.float32, device=logits.device)
    tile_keys[(rows, tiles)](
        logits, keys, lse, columns, tiles, K=width, TILE=tile, num_warps=_WARPS
    )
    while tiles > 1:
        length, tiles = tiles * width, triton.cdiv(tiles * width, tile)
        merged = torch.empty(rows, tiles * width, dtype=torch.int64, device=logits.device)
        merge_keys[(rows, tiles)](keys, merged, length, tiles, K=width, TILE=tile, num_warps=_WARPS)
        keys = merged
    chosen = 0x7FFFFFFF - (keys[:, :k] & 0xFFFFFFFF)
    return Selection(
        logits.gather(1, chosen), chosen, torch.logsumexp(lse, dim=1) if logsumexp else None
    )
