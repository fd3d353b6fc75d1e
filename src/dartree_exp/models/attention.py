"""Attention whose rows do not depend on their company: accumulated in float64, rounded once.

The library's attention adds the terms of a row in an order that depends on where the keys lie and on how many rows there
are, so that a tree row and a one-token step differ in bfloat16 (docs/decisions/0006-row-invariance.md). Products of
bfloat16 numbers are exact in float64, and a sum in another order differs by 1e-16, which the rounding to bfloat16 hides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

ROW_INVARIANT = "dartree_row_invariant"
"""Name under which the library knows the function (`attn_implementation`)."""

_SCORES = 4_000_000  # float64 values at a time (32 MB): a long prompt's rows are taken in pieces


def row_invariant_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The library's attention interface: query [1, heads, n, d], key and value [1, kv_heads, L, d], batch size 1.

    attention_mask: additive [1, 1, n, L], finfo.min where hidden; None: every row sees every key.
    Returns the heads' results [1, n, heads, d] in the query's dtype.
    """
    heads, rows, size = query.shape[1:]
    kv_heads, length = key.shape[1:3]
    # Query heads that share a key head are rows of one product, so that each key is read once.
    queries = (query[0].double() * scaling).view(kv_heads, -1, rows, size)
    keys, values = key[0].double().transpose(1, 2), value[0].double()
    out = torch.empty_like(queries)
    step = max(1, _SCORES // (heads * length))
    for first in range(0, rows, step):
        some = slice(first, first + step)
        scores = torch.bmm(queries[:, :, some].flatten(1, 2), keys).view(kv_heads, heads // kv_heads, -1, length)
        if attention_mask is not None:
            scores += attention_mask[0, 0, some]
        weights = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
        total = weights.sum(-1, keepdim=True)
        out[:, :, some] = torch.bmm(weights.flatten(1, 2), values).view_as(out[:, :, some]).div_(total)
    return out.view(heads, rows, size).transpose(0, 1)[None].to(query.dtype), None


AttentionInterface.register(ROW_INVARIANT, row_invariant_attention)
AttentionMaskInterface.register(ROW_INVARIANT, eager_mask)
