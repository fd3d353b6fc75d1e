"""The backbone's training forward: many blocks of many sequences at once, the same numbers as
`DFlashBackbone`.

A block query sees context strictly before its anchor and all slots of its own block (the slots up
to itself for a causal backbone), nothing of other blocks. Three savings over the plain module with
one big mask: keys of other blocks are never formed; the first layer's projections of the mask
embedding, the same row in every slot, are computed once; and the last layer is evaluated only at
the slots whose loss is wanted.
`tests/training/test_forward.py` compares it with the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dartree_exp.drafters.dflash.model import (
    DFlashAttention,
    DFlashBackbone,
    DFlashLayer,
    RMSNorm,
    rotary_table,
    rotate,
)


@dataclass(frozen=True)
class BlockInputs:
    """S sequences with A anchors each.

    features: float32 [T, n * H], the sequences' context tokens packed one after another. rows:
    int64 [S, C], index of each context position in the packed rows (any valid index where padded).
    anchors: int64 [S, A], positions of the anchors; a context position p is visible iff p < anchor.
    anchor_embeds: [S, A, H]; mask_embed: [H].
    """

    features: Tensor
    rows: Tensor
    anchors: Tensor
    anchor_embeds: Tensor
    mask_embed: Tensor


def block_hidden(
    backbone: DFlashBackbone, inputs: BlockInputs, block: int, slots: Tensor | None = None
) -> Tensor:
    """Final-normed hidden states [S, A, R, H] of slots int64 [S, A, R] of each block (None: all, R
    = block).
    """
    samples, anchors = inputs.anchors.shape
    width = inputs.mask_embed.shape[0]
    context = _norm(backbone.hidden_norm, backbone.fc(inputs.features))
    positions = inputs.anchors[:, :, None] + torch.arange(block)
    tables = _rotary(int(positions.max()) + 1, backbone)
    seen = torch.arange(inputs.rows.shape[1]) < inputs.anchors[:, :, None]
    hidden_context = torch.zeros(seen.shape, dtype=context.dtype).masked_fill_(
        ~seen, torch.finfo(context.dtype).min
    )
    x = torch.cat([inputs.anchor_embeds.reshape(-1, width), inputs.mask_embed[None]])
    spread = torch.full((samples, anchors, block), samples * anchors)
    spread[:, :, 0] = torch.arange(samples * anchors).view(samples, anchors)
    last, causal = len(backbone.layers) - 1, backbone.config.causal
    for index, module in enumerate(backbone.layers):
        layer = cast(DFlashLayer, module)  # torch types a ModuleList's items as modules
        # In the first layer x holds one row per anchor and one mask row; `spread` says which row a
        # slot has.
        picked = slots if index == last else None
        h = layer.input_layernorm(x)
        attn = layer.self_attn
        context_kv = _context_kv(attn, context, inputs.rows, tables)
        mixed = _attend(
            attn, h, spread, picked, positions, context_kv, hidden_context, tables, causal
        )
        x = F.embedding(spread, x) if x.dim() == 2 else x
        if picked is not None:
            x = x.gather(2, picked[..., None].expand(-1, -1, -1, width))
        x = x + attn.o_proj(mixed)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return backbone.norm(x)


def _norm(norm: RMSNorm, x: Tensor) -> Tensor:
    """`norm` in its own dtype: under autocast x comes out of a projection as bfloat16."""
    return norm(x.to(norm.weight.dtype))


def _rotary(length: int, backbone: DFlashBackbone) -> tuple[Tensor, Tensor]:
    cos, sin = rotary_table(torch.arange(length)[None], backbone.config, backbone.fc.weight.dtype)
    return cos[0, 0], sin[0, 0]


def _context_kv(
    attn: DFlashAttention, context: Tensor, rows: Tensor, tables: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Keys (normed, rotated) and values [S, KV, C, head_dim] of the context, computed packed, then
    padded.
    """
    keys = _norm(attn.k_norm, attn.k_proj(context).unflatten(-1, (-1, attn.head_dim)))
    values = attn.v_proj(context)
    keys = F.embedding(rows, keys.flatten(1)).unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)
    values = F.embedding(rows, values).unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)
    length = rows.shape[1]
    return rotate(keys, tables[0][:length], tables[1][:length]), values


def _attend(
    attn: DFlashAttention,
    h: Tensor,
    spread: Tensor,
    picked: Tensor | None,
    positions: Tensor,
    context_kv: tuple[Tensor, Tensor],
    hidden_context: Tensor,
    tables: tuple[Tensor, Tensor],
    causal: bool,
) -> Tensor:
    """Attention output before o_proj, [S, A, R, heads * head_dim]."""
    size = attn.head_dim
    q, k, v = attn.q_proj, attn.k_proj(h), attn.v_proj(h)
    keys = _norm(attn.k_norm, k.unflatten(-1, (-1, size))).flatten(-2)
    if h.dim() == 2:
        queries = _norm(attn.q_norm, q(h).unflatten(-1, (-1, size))).flatten(-2)
        index = spread if picked is None else spread.gather(2, picked)
        queries, keys, v = (
            F.embedding(index, queries),
            F.embedding(spread, keys),
            F.embedding(spread, v),
        )
    else:
        if picked is not None:
            h = h.gather(2, picked[..., None].expand(-1, -1, -1, h.shape[-1]))
        queries = _norm(attn.q_norm, q(h).unflatten(-1, (-1, size))).flatten(-2)
    at = positions if picked is None else positions.gather(2, picked)
    samples, anchors, count = at.shape
    shared = keys.shape[-1] // size
    # [S, KV, A, R * group, d]: query heads that share a key head lie together.
    queries = rotate(
        queries.unflatten(-1, (-1, size)), tables[0][at][..., None, :], tables[1][at][..., None, :]
    )
    queries = (
        queries.unflatten(3, (shared, -1)).permute(0, 3, 1, 2, 4, 5).flatten(3, 4) * size**-0.5
    )
    keys = rotate(
        keys.unflatten(-1, (-1, size)),
        tables[0][positions][..., None, :],
        tables[1][positions][..., None, :],
    )
    keys, v = keys.permute(0, 3, 1, 2, 4), v.unflatten(-1, (-1, size)).permute(0, 3, 1, 2, 4)
    far = (queries.flatten(2, 3) @ context_kv[0].transpose(-1, -2)).view(*queries.shape[:4], -1)
    far = far + hidden_context[:, None, :, None]
    near = queries @ keys.transpose(-1, -2)
    if causal:
        later = torch.arange(near.shape[-1]) > (at - positions[..., :1])[..., None]
        least = torch.finfo(near.dtype).min
        # [S, A, R, b] for the heads of each row: R * group rows with the group last.
        each = later.repeat_interleave(near.shape[3] // count, dim=2)
        near = near.masked_fill(each[:, None], least)
    p = torch.softmax(torch.cat([far, near], dim=-1), dim=-1)
    length = far.shape[-1]
    out = (p[..., :length].flatten(2, 3) @ context_kv[1]).view_as(queries) + p[..., length:] @ v
    out = out.unflatten(3, (count, -1)).permute(0, 2, 3, 1, 4, 5)
    return out.reshape(samples, anchors, count, -1)
