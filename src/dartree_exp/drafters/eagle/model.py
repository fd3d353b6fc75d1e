"""EAGLE's one-layer drafter (arXiv 2401.15077, 2406.16858, 2503.01840). Parameter names are those
of the official EAGLE-3 checkpoints; EAGLE-1/2 has `layers.0` for `midlayer`.

A row is a pair: the feature f_t of a position and the embedding of the token at t + 1. Its output
hidden state says the token at t + 2, and is the feature of the next row where the target has not
read that far.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.drafters.dflash.model import RMSNorm, Rotary, SwiGLU, rotary_table, rotate
from dartree_exp.drafters.eagle.config import EagleConfig

Hidden = Float[Tensor, "rows H"]


class KeysAndValues(Protocol):
    """The part of `DraftCache` that a forward uses; training has one that passes gradients."""

    def reserve(self, rows: int) -> None: ...

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]: ...


class EagleModel(nn.Module):
    """EAGLE-3: fc joins the tapped layers, the midlayer reads [embedding; feature], and `norm` and
    `lm_head` give logits over the draft vocabulary. EAGLE-2: fc joins [embedding; feature], and the
    target's head reads the output.
    """

    def __init__(self, config: EagleConfig, num_taps: int = 3) -> None:
        super().__init__()
        self.config = config
        hidden, third = config.hidden_size, config.third
        inner = num_taps * config.feature_size if third else hidden + config.feature_size
        self.fc = nn.Linear(inner, hidden, bias=config.fc_bias)
        self.midlayer = EagleLayer(config)
        if third:
            self.norm = RMSNorm(hidden, config.rms_norm_eps)
            self.lm_head = nn.Linear(
                hidden, config.draft_vocab_size or config.vocab_size, bias=False
            )

    def new_cache(self) -> DraftCache:
        """An empty cache in the model's dtype and on its device."""
        c, weight = self.config, self.fc.weight
        return DraftCache(
            1,
            c.num_key_value_heads,
            c.head_dim,
            batch=1,
            dtype=weight.dtype,
            device=weight.device,
        )

    def start(self, features: Float[Tensor, "rows F"]) -> Hidden | Float[Tensor, "rows F"]:
        """The target's features as `forward` reads them, like hidden states of its own."""
        return self.fc(features) if self.config.third else features

    def forward(
        self,
        hidden: Hidden,
        embeds: Hidden,
        positions: Int64[Tensor, " rows"],
        mask: Float[Tensor, "rows keys"],
        cache: KeysAndValues | None = None,
    ) -> Hidden:
        """Output hidden states, without a norm.

        hidden: of the row before each row: of `start`, or an earlier output. positions: absolute.
        mask: additive, over the cached rows and these. cache: the rows' keys and values are written
        after its `length`, which the caller moves; None: there are no earlier rows.
        """
        x = hidden
        if not self.config.third:
            x = self.fc(torch.cat([embeds, hidden], dim=-1))
        if cache is not None:
            cache.reserve(len(x))
        rotary = rotary_table(positions[None], self.config, x.dtype)
        return self.midlayer(x, embeds, rotary, mask, cache)

    def logits(self, hidden: Hidden) -> Float[Tensor, "rows Vd"]:
        """EAGLE-3 only: over the draft vocabulary."""
        return self.lm_head(self.norm(hidden))


class EagleLayer(nn.Module):
    """One decoder layer. EAGLE-3 norms embedding and feature apart and attends over both; EAGLE-2
    has no norm before its attention.
    """

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.third, self.norm_first = config.third, config.norm_before_residual
        self.self_attn = EagleAttention(config)
        self.mlp = SwiGLU(hidden, config.intermediate_size)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        if config.third:
            self.hidden_norm = RMSNorm(hidden, eps)
            self.input_layernorm = RMSNorm(hidden, eps)

    def forward(
        self, x: Hidden, embeds: Hidden, rotary: Rotary, mask: Tensor, cache: KeysAndValues | None
    ) -> Hidden:
        read = x
        if self.third:
            normed = self.hidden_norm(x)
            read = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
            x = normed if self.norm_first else x
        x = x + self.self_attn(read, rotary, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class EagleAttention(nn.Module):
    """Grouped-query attention; queries, keys and values read 2H numbers in EAGLE-3."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        read = config.hidden_size * (2 if config.third else 1)
        queries = config.num_attention_heads * config.head_dim
        shared, bias = config.num_key_value_heads * config.head_dim, config.qkv_bias
        self.q_proj = nn.Linear(read, queries, bias=bias)
        self.k_proj = nn.Linear(read, shared, bias=bias)
        self.v_proj = nn.Linear(read, shared, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self,
        read: Float[Tensor, "rows read"],
        rotary: Rotary,
        mask: Float[Tensor, "rows keys"],
        cache: KeysAndValues | None,
    ) -> Hidden:
        q = rotate(self.q_norm(self._heads(self.q_proj(read))), *rotary)
        k = rotate(self.k_norm(self._heads(self.k_proj(read))), *rotary)
        v = self._heads(self.v_proj(read))
        if cache is not None:
            k, v = cache.write(0, k, v)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.o_proj(out[0].transpose(0, 1).flatten(1))

    def _heads(self, x: Float[Tensor, "rows width"]) -> Float[Tensor, "1 heads rows head_dim"]:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)[None]
