"""The DFlash draft backbone (arXiv 2602.06036): a few decoder layers that take the target's hidden
states as context and fill a block of tokens in one pass. Parameter names are those of the released
checkpoints.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.drafters.dflash.config import DFlashConfig

# cos and sin of the positions of [context; block], in the dtype of the block.
Rotary = tuple[Float[Tensor, "#batch 1 L head_dim"], Float[Tensor, "#batch 1 L head_dim"]]
Slots = Float[Tensor, "batch Q H"]
Context = Float[Tensor, "batch C H"]
Mask = Float[Tensor, "#batch 1 Q keys"]  # additive, in the dtype of the block


class RotarySizes(Protocol):
    """What rotary positions need of a drafter's configuration."""

    @property
    def head_dim(self) -> int: ...

    @property
    def rope_theta(self) -> float: ...


class DFlashBackbone(nn.Module):
    """Block-parallel drafter that uses the target's embedding and vocabulary head."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, config.rms_norm_eps)
        self.layers = nn.ModuleList(
            DFlashLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(hidden, config.rms_norm_eps)

    def new_cache(self, batch: int = 1) -> DraftCache:
        """An empty cache in the backbone's dtype and on its device."""
        c, weight = self.config, self.fc.weight
        return DraftCache(
            c.num_hidden_layers,
            c.num_key_value_heads,
            c.head_dim,
            batch=batch,
            dtype=weight.dtype,
            device=weight.device,
        )

    def forward(
        self,
        features: Float[Tensor, "batch C features"],
        block_embeds: Slots,
        context_positions: Int64[Tensor, "#batch C"],
        block_positions: Int64[Tensor, "#batch Q"],
        mask: Mask | None = None,
        cache: DraftCache | None = None,
    ) -> Slots:
        """Final-normed hidden states of the block slots.

        features: the target's tapped hidden states of the C new context tokens, layers
        concatenated. block_embeds: embeddings of root and mask tokens; in training, several blocks
        concatenated. Positions are absolute. mask: over keys [context; all blocks], not allowed
        with a cache; None: every slot sees all context and the whole block, or only the slots up
        to itself if the config is `causal`. cache: context of earlier calls; the C new rows are
        appended, the block's are not kept. Raises ValueError for mask and cache together.
        """
        if mask is not None and cache is not None:
            raise ValueError(
                "mask and cache: only one is allowed; a cached call is always one unmasked block"
            )
        context = self.hidden_norm(self.fc(features))
        rotary = rotary_table(
            torch.cat([context_positions, block_positions], dim=1), self.config, block_embeds.dtype
        )
        past = 0 if cache is None else cache.length
        if cache is not None:
            cache.reserve(features.shape[1] + block_embeds.shape[1])
        if mask is None and self.config.causal:
            slots = block_embeds.shape[1]
            mask = causal_mask(past + features.shape[1], slots, block_embeds.dtype)
            mask = mask.to(block_embeds.device)[None, None]
        x = block_embeds
        for layer in self.layers:
            x = layer(x, context, rotary, mask, cache)
        if cache is not None:
            cache.length += features.shape[1]
        return self.norm(x)


class DFlashLayer(nn.Module):
    """One decoder layer: only the block passes through its residual stream; the context is used as
    keys and values.
    """

    def __init__(self, config: DFlashConfig, index: int) -> None:
        super().__init__()
        self.self_attn = DFlashAttention(config, index)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        x: Slots,
        context: Context,
        rotary: Rotary,
        mask: Mask | None,
        cache: DraftCache | None,
    ) -> Slots:
        # The context skips input_layernorm: hidden_norm normed it once for all layers.
        x = x + self.self_attn(self.input_layernorm(x), context, rotary, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlashAttention(nn.Module):
    """Queries from the block, keys and values from [context; block]; per-head RMS norm on both,
    then rotary.
    """

    def __init__(self, config: DFlashConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.head_dim = config.head_dim
        hidden, queries = config.hidden_size, config.num_attention_heads * config.head_dim
        shared = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(hidden, queries, bias=False)
        self.k_proj = nn.Linear(hidden, shared, bias=False)
        self.v_proj = nn.Linear(hidden, shared, bias=False)
        self.o_proj = nn.Linear(queries, hidden, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self,
        h: Slots,
        context: Context,
        rotary: Rotary,
        mask: Mask | None,
        cache: DraftCache | None,
    ) -> Slots:
        source = torch.cat([context, h], dim=1)
        cos, sin = rotary
        slots = h.shape[1]
        q = rotate(self.q_norm(self._heads(self.q_proj(h))), cos[:, :, -slots:], sin[:, :, -slots:])
        k = rotate(self.k_norm(self._heads(self.k_proj(source))), cos, sin)
        v = self._heads(self.v_proj(source))
        if cache is not None:
            k, v = cache.write(self.index, k, v)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Float[Tensor, "batch L width"]) -> Float[Tensor, "batch heads L head_dim"]:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows H"]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class RMSNorm(nn.Module):
    """x / rms(x) * weight, with statistics in at least float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows size"]:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def causal_mask(context: int, slots: int, dtype: torch.dtype) -> Float[Tensor, "Q keys"]:
    """Additive mask of one block: all context, the slot itself and the slots before it."""
    later = torch.full((slots, slots), torch.finfo(dtype).min, dtype=dtype).triu(1)
    return F.pad(later, (context, 0))


def rotary_table(
    positions: Int64[Tensor, "batch L"], config: RotarySizes, dtype: torch.dtype
) -> Rotary:
    """cos and sin of the positions, in `dtype`.

    Angles are at least float32. Frequencies are not kept in a buffer, since `module.to(bfloat16)`
    would round it.
    """
    wide = torch.promote_types(dtype, torch.float32)
    steps = (
        torch.arange(0, config.head_dim, 2, dtype=wide, device=positions.device) / config.head_dim
    )
    angles = positions.to(wide)[:, None, :, None] * config.rope_theta**-steps
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(
    x: Float[Tensor, "*rows head_dim"],
    cos: Float[Tensor, "*#rows head_dim"],
    sin: Float[Tensor, "*#rows head_dim"],
) -> Float[Tensor, "*rows head_dim"]:
    """Rotary embedding of x, halves convention."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
