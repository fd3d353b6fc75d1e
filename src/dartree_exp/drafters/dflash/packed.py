"""The draft backbone for drafting: the numbers of `DFlashBackbone` within rounding, in half the
time on a CPU.

A block has a dozen rows, so on a CPU a round is spent on laying out weights and on calls. Here
weights are laid out once (`kernels.packed_linear`), products of the same rows are one, norms and
rotary embeddings of all heads are one, and the residual stream and all norms are at least float32.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.drafters.dflash.model import (
    DFlashBackbone,
    DFlashLayer,
    causal_mask,
    rotary_table,
)
from dartree_exp.kernels.packed_linear import packed_linear, packed_linears

# cos and sin of positions; sin is negative in the first half of a head.
Rotary = tuple[Float[Tensor, "L 1 head_dim"], Float[Tensor, "L 1 head_dim"]]


class PackedBackbone:
    """A copy of a backbone's weights: later changes of the module are not seen."""

    def __init__(self, backbone: DFlashBackbone) -> None:
        self.config = backbone.config
        self.dtype = backbone.fc.weight.dtype
        wide = torch.promote_types(self.dtype, torch.float32)
        self._fc = packed_linear(backbone.fc.weight)
        eps = self.config.rms_norm_eps
        self._context_norm = _Norm(backbone.hidden_norm.weight, eps, wide)
        self._layers = [_Layer(cast(DFlashLayer, layer), eps, wide) for layer in backbone.layers]
        self._norm = _Norm(backbone.norm.weight, eps, wide)
        self._rotary = self._rotary_of(0, backbone.fc.weight.device, wide)

    def __call__(
        self,
        features: Float[Tensor, "C features"],
        block: Float[Tensor, "b H"],
        cache: DraftCache,
    ) -> Float[Tensor, "b H"]:
        """Final-normed hidden states of the slots of one block, which follows the context.

        features: of the context tokens after those in `cache`, to which they are added. block: the
        embeddings of its slots.
        """
        rows = len(features)
        start, end = cache.length, cache.length + rows + len(block)
        cache.reserve(rows + len(block))
        cos, sin = self._rotary_to(end)
        rotary = cos[start:end], sin[start:end]
        context = self._context_norm(self._fc(features.to(self.dtype))).to(self.dtype)
        x = block.to(cos.dtype)
        mask = None
        if self.config.causal:
            mask = causal_mask(start + rows, len(block), self.dtype).to(x.device)
        for index, layer in enumerate(self._layers):
            x = layer(x, context, rotary, cache, index, mask)
        cache.length += rows
        return self._norm(x).to(self.dtype)

    def _rotary_to(self, end: int) -> Rotary:
        """Of at least the first `end` positions."""
        table = self._rotary[0]
        if len(table) < end:
            self._rotary = self._rotary_of(2 * end, table.device, table.dtype)
        return self._rotary

    def _rotary_of(self, count: int, device: torch.device, dtype: torch.dtype) -> Rotary:
        positions = torch.arange(count, device=device)[None]
        cos, sin = (table[0, 0, :, None] for table in rotary_table(positions, self.config, dtype))
        first, second = sin.chunk(2, dim=-1)
        return cos, torch.cat([-first, second], dim=-1)


class _Layer:
    """`DFlashLayer` for one block."""

    def __init__(self, layer: DFlashLayer, eps: float, wide: torch.dtype) -> None:
        attn, mlp = layer.self_attn, layer.mlp
        self._head_dim = attn.head_dim
        self._queries = attn.q_proj.out_features // attn.head_dim
        shared = attn.k_proj.out_features // attn.head_dim
        self._qk_v = packed_linears(
            torch.cat([attn.q_proj.weight, attn.k_proj.weight]), attn.v_proj.weight
        )
        self._o = packed_linear(attn.o_proj.weight)
        self._gate_up = packed_linears(mlp.gate_proj.weight, mlp.up_proj.weight)
        self._down = packed_linear(mlp.down_proj.weight)
        self._norm_in = _Norm(layer.input_layernorm.weight, eps, wide)
        self._norm_post = _Norm(layer.post_attention_layernorm.weight, eps, wide)
        heads = [
            attn.q_norm.weight.expand(self._queries, -1),
            attn.k_norm.weight.expand(shared, -1),
        ]
        self._norm_qk = _Norm(torch.cat(heads), eps, wide)

    def __call__(
        self,
        x: Float[Tensor, "b H"],
        context: Float[Tensor, "C H"],
        rotary: Rotary,
        cache: DraftCache,
        index: int,
        mask: Float[Tensor, "b keys"] | None,
    ) -> Float[Tensor, "b H"]:
        dtype = context.dtype
        # The context skips input_layernorm: hidden_norm normed it once for all layers.
        qk, v = self._qk_v(torch.cat([context, self._norm_in(x).to(dtype)]))
        qk = self._norm_qk(self._heads(qk))
        # Both halves swapped; the sign of the second one is in the table of sines.
        cos, sin = rotary
        qk = torch.addcmul(qk * cos, qk.roll(self._head_dim // 2, -1), sin)
        q, k = qk.transpose(0, 1)[None].tensor_split([self._queries], dim=1)
        keys, values = cache.write(index, k, self._heads(v).transpose(0, 1)[None])
        q = q[:, :, -len(x) :].to(dtype)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self._o(out[0].transpose(0, 1).flatten(1))
        gate, up = self._gate_up(self._norm_post(x).to(dtype))
        return x + self._down(F.silu(gate) * up)

    def _heads(self, x: Float[Tensor, "L width"]) -> Float[Tensor, "L heads head_dim"]:
        return x.unflatten(-1, (-1, self._head_dim))


class _Norm:
    """RMS norm of the last axis in the dtype `wide`."""

    def __init__(self, weight: Float[Tensor, "*heads size"], eps: float, wide: torch.dtype) -> None:
        self._weight, self._eps, self._wide = weight.detach().to(wide), eps, wide

    def __call__(self, x: Float[Tensor, "L *heads size"]) -> Float[Tensor, "L *heads size"]:
        x = x.to(self._wide)
        scale = x.square().mean(-1, keepdim=True).add_(self._eps).rsqrt_()
        return (x * scale).mul_(self._weight)
