"""The target's forward on packed weights, for Llama and Qwen3 models: joint query-key-value and
gate-up products, rotary embedding as one complex product, attention in preallocated memory.

It equals the library's forward up to rounding: the rotary embedding and the scores are computed in
float32, where the library rounds to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.engines.cache import head_shape
from dartree_exp.engines.folded import FoldedAttention, FoldedCache
from dartree_exp.engines.forward import Product, Read
from dartree_exp.kernels.packed_linear import packed_linear
from dartree_exp.kernels.tree_mask import visibility

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM


COPIES = 4
"""Rows in place of a single one: a product of three to six takes less time than one of two."""


def joint(*layers: nn.Linear) -> Product:
    """One product with the weights of several layers, side by side."""
    weights: list[Tensor] = [layer.weight for layer in layers]
    weight = torch.cat(weights)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return Product(weight.shape[1], packed_linear(weight, torch.cat(biases) if biases else None))


class PackedLayer:
    """One decoder layer. Rows of queries and keys are reordered within each head so that the two
    halves of a rotary pair are neighbours, which changes no score.
    """

    def __init__(self, layer: nn.Module, head_dim: int) -> None:
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        paired = torch.arange(head_dim).view(2, -1).t().flatten()
        for projection in (attention.q_proj, attention.k_proj):
            for rows in projection.parameters():
                rows.data = rows.unflatten(0, (-1, head_dim))[:, paired].flatten(0, 1)
        self.qkv = joint(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = joint(attention.o_proj)
        self.gate_up = joint(mlp.gate_proj, mlp.up_proj)
        self.down = joint(mlp.down_proj)
        self.before = Norm(layer.input_layernorm)
        self.between = Norm(layer.post_attention_layernorm)
        self.head_norm: Tensor | None = None  # [heads + kv_heads, head_dim]
        if hasattr(attention, "q_norm"):
            heads = [
                norm.weight[paired].expand(projection.weight.shape[0] // head_dim, -1)
                for norm, projection in (
                    (attention.q_norm, attention.q_proj),
                    (attention.k_norm, attention.k_proj),
                )
            ]
            self.head_norm = torch.cat(heads)
            self.head_eps = float(attention.q_norm.variance_epsilon)
        for projection in layer.modules():  # the packed copies replace the weights
            if isinstance(projection, nn.Linear):
                projection.weight = nn.Parameter(
                    projection.weight.new_empty(0), requires_grad=False
                )


class PackedForward:
    """See `forward.TargetForward`. Takes over the weights of the model's layers, so the model
    itself cannot be called any more. Masks are additive [n, n] among the new rows.
    """

    def __init__(self, model: LlamaForCausalLM | Qwen3ForCausalLM) -> None:
        backbone: Any = model.model
        self.heads, self.kv_heads, self.head_dim = head_shape(model.config)
        self._embed: Tensor = backbone.embed_tokens.weight
        self._attention = FoldedAttention(
            self.heads,
            self.kv_heads,
            self.head_dim,
            float(backbone.layers[0].self_attn.scaling),
            self._embed.dtype,
            self._embed.device,
        )
        self._rotary = backbone.rotary_emb
        self._norm = Norm(backbone.norm)
        self._head = joint(model.lm_head)
        self._layers = [PackedLayer(layer, self.head_dim) for layer in backbone.layers]
        self.wide = torch.promote_types(self._embed.dtype, torch.float32)
        self._row_invariant = False
        self.copied = True

    @staticmethod
    def refusal(model: LlamaForCausalLM | Qwen3ForCausalLM) -> str | None:
        """Why this forward does not compute the model; None if it does."""
        config: Any = model.config
        if config.hidden_act != "silu":
            return f"hidden_act={config.hidden_act}; only silu is supported"
        return None

    @property
    def row_invariant(self) -> bool:
        return self._row_invariant

    @row_invariant.setter
    def row_invariant(self, on: bool) -> None:
        self._row_invariant = on
        self._attention.sums = torch.float64 if on else self.wide

    def cache(self, capacity: int) -> FoldedCache:
        return self._attention.cache(len(self._layers), capacity)

    def mask(self, parents: Int64[Tensor, " n"], past: int) -> Float[Tensor, "n n"]:
        seen = visibility(parents)
        return torch.zeros_like(seen, dtype=self.wide).masked_fill_(~seen, -torch.inf)

    def products(self) -> list[Product]:
        layer = self._layers[0]
        products = layer.qkv, layer.out, layer.gate_up, layer.down, self._head
        return [*products, Product(self.head_dim, self._attention.sample_scores)]

    def logits(self, hidden: Float[Tensor, "n H"]) -> Float[Tensor, "n V"]:
        if self._row_invariant and self.copied and len(hidden) == 1:
            return self._head.of(hidden.expand(COPIES, -1))[:1]
        return self._head.of(hidden)

    def hidden(
        self,
        tokens: Int64[Tensor, " n"],
        positions: Int64[Tensor, " n"],
        mask: Tensor | None,
        cache: FoldedCache,  # type: ignore[override]
        taps: Sequence[int],
    ) -> Read:
        n = len(tokens)
        if mask is not None and (mask.dtype != self.wide or tuple(mask.shape) != (n, n)):
            raise ValueError(
                f"tree mask must be additive {self.wide} of shape {(n, n)}, got {mask.dtype} "
                f"{tuple(mask.shape)}"
            )
        cache.claim(n)
        turns = self._turns(positions)
        x = F.embedding(tokens, self._embed)
        # Products over a single row may add up in another order; then it is copied.
        copied = self._row_invariant and self.copied and n == 1
        if copied:
            x = x.expand(COPIES, -1)
        tapped = {-1: x}
        normed, split = Normed(x), Split(self, turns)
        attend = self._attention.over(cache, n, mask)
        for index, layer in enumerate(self._layers):
            queries, keys, values = split(layer, layer.qkv.of(normed(x, layer.before)))
            attended = attend(index, queries, keys, values)
            x = layer.out.of(attended.expand(COPIES, -1) if copied else attended).add_(x)
            gate, up = layer.gate_up.of(normed(x, layer.between)).chunk(2, dim=-1)
            x = layer.down.of(F.silu(gate).mul_(up)).add_(x)
            tapped[index] = x
        features = torch.cat([tapped[tap] for tap in taps], dim=-1)[:n] if taps else None
        return normed(x, self._norm)[:n], features

    def _turns(self, positions: Int64[Tensor, " n"]) -> Tensor:
        """Rotations of the positions, complex128 [n, 1, head_dim / 2]. Angles as in the library.

        In double precision, because products of narrower complex numbers round differently with
        and without vector instructions, so differently at the end of a thread's part.
        """
        angles = (positions[:, None].float() * self._rotary.inv_freq).double()
        turns = torch.polar(torch.full_like(angles, self._rotary.attention_scaling), angles)
        return turns[:, None]


class Split:
    """Divides joint products of n rows into queries, keys and values; rotates the first two."""

    def __init__(self, shape: PackedForward, turns: Tensor) -> None:
        """turns: complex [n, 1, head_dim / 2]."""
        n, heads, kv, dim = len(turns), shape.heads, shape.kv_heads, shape.head_dim
        self._turns = turns
        self._joint = torch.empty(n, heads + 2 * kv, dim, dtype=shape.wide, device=turns.device)
        self._flat = self._joint.view(n, -1)
        self._turned = self._joint[:, : heads + kv]
        self._pairs = self._turned.view(shape.wide.to_complex())
        queries, keys, values = self._joint.split([heads, kv, kv], dim=1)
        self._parts = (
            queries.unflatten(1, (kv, -1)).transpose(0, 1),
            keys.transpose(0, 1),
            values.transpose(0, 1),
        )

    def __call__(
        self, layer: PackedLayer, product: Float[Tensor, "rows _"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [kv_heads, n, group, head_dim], keys and values [kv_heads, n, head_dim], in at
        least float32, in a buffer that the next call overwrites. product: may have more rows.
        """
        self._flat.copy_(product[: len(self._flat)])
        if layer.head_norm is not None:
            heads = F.rms_norm(self._turned, self._turned.shape[-1:], None, layer.head_eps)
            torch.mul(heads, layer.head_norm, out=self._turned)
        torch.mul(self._pairs, self._turns, out=self._pairs)
        return self._parts


class Norm:
    """The weight (in at least float32) and the epsilon of an RMS norm."""

    def __init__(self, module: Any) -> None:
        wide = torch.promote_types(module.weight.dtype, torch.float32)
        self.weight: Tensor = module.weight.to(wide)
        self.eps = self.weight.new_tensor(module.variance_epsilon)


class Normed:
    """x / rms(x) * weight of rows like `x`, computed in at least float32 and rounded once, in a
    buffer that the next call overwrites.
    """

    def __init__(self, x: Float[Tensor, "n H"]) -> None:
        self._out = x.new_empty(x.shape)
        self.wide = self._out.to(torch.promote_types(x.dtype, torch.float32))
        self._scale = self.wide.new_empty(len(x), 1)

    def __call__(self, x: Float[Tensor, "n H"], norm: Norm) -> Float[Tensor, "n H"]:
        wide, scale = self.wide, self._scale
        wide.copy_(x)
        torch.linalg.vector_norm(wide, dim=-1, keepdim=True, out=scale)
        torch.addcmul(norm.eps, scale, scale, value=1 / x.shape[-1], out=scale).rsqrt_()
        return torch.mul(wide.mul_(scale), norm.weight, out=self._out)
