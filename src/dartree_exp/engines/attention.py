"""Attention whose rows do not depend on each other: torch's own, accumulated in float64 and rounded
once.

In bfloat16 the library's attention sums a row's terms in an order that depends on the memory layout
of the keys and on the number of rows, so a tree row and a one-token step differ
(docs/decisions/0006-row-invariance.md). Products of bfloat16 numbers are exact in float64, and the
order of summation changes the sum by 1e-16, which rounding to bfloat16 removes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

ROW_INVARIANT = "dartree_row_invariant"
"""The function's name in the library (`attn_implementation`)."""


def row_invariant_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """The library's attention interface: query [1, heads, n, d], key and value [1, kv_heads, L, d].

    attention_mask: additive [1, 1, n, L], finfo.min where hidden; None: every row sees every key.
    Returns [1, n, heads, d] in the query's dtype.
    """
    mask = None if attention_mask is None else attention_mask.double()
    out = F.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), attn_mask=mask, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).to(query.dtype), None


AttentionInterface.register(ROW_INVARIANT, row_invariant_attention)
AttentionMaskInterface.register(ROW_INVARIANT, eager_mask)
