"""The library's own modules as the target's forward: the reference of every other forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.engines.attention import ROW_INVARIANT
from dartree_exp.engines.cache import LibraryCache, TargetCache, head_shape
from dartree_exp.engines.forward import Product, Read
from dartree_exp.kernels.tree_mask import tree_mask

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM


def _rows(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer of rows as the library calls it: in a batch of one."""
    return layer(x[None])[0]


class LibraryForward:
    """See `forward.TargetForward`. Masks are those of the library: additive [1, 1, n, past + n]."""

    def __init__(self, model: LlamaForCausalLM | Qwen3ForCausalLM) -> None:
        self._model = model
        self._backbone = model.model
        self._head = model.lm_head
        self._tapped: dict[int, Tensor] | None = None
        self._hooked: set[int] = set()
        self._row_invariant = False
        self.copied = True

    @property
    def row_invariant(self) -> bool:
        return self._row_invariant

    @row_invariant.setter
    def row_invariant(self, on: bool) -> None:
        self._model.set_attn_implementation(ROW_INVARIANT if on else "sdpa")
        self._row_invariant = on

    def cache(self, capacity: int) -> LibraryCache:
        _, kv_heads, head_dim = head_shape(self._model.config)
        return LibraryCache(
            layers=len(self._backbone.layers),
            kv_heads=kv_heads,
            head_dim=head_dim,
            capacity=capacity + self._row_invariant,  # a row for the duplicate of a single one
            dtype=self._head.weight.dtype,
            device=self._head.weight.device,
        )

    def mask(self, parents: Int64[Tensor, " n"], past: int) -> Float[Tensor, "1 1 n _"]:
        return tree_mask(parents, past, self._head.weight.dtype)

    def products(self) -> list[Product]:
        layers = [m for m in self._model.modules() if isinstance(m, nn.Linear)]
        shapes = {tuple(layer.weight.shape): layer for layer in layers}
        return [Product(shape[1], partial(_rows, layer)) for shape, layer in shapes.items()]

    def logits(self, hidden: Float[Tensor, "n H"]) -> Float[Tensor, "n V"]:
        if self._row_invariant and self.copied and hidden.shape[0] == 1:
            return self._head(hidden.expand(2, -1))[:1]
        return self._head(hidden)

    def hidden(
        self,
        tokens: Int64[Tensor, " n"],
        positions: Int64[Tensor, " n"],
        mask: Tensor | None,
        cache: TargetCache,
        taps: Sequence[int],
    ) -> Read:
        """Raises ValueError for a mask of the wrong shape or dtype (a boolean mask is silently
        wrong under eager attention).
        """
        n, dtype = tokens.shape[0], self._head.weight.dtype
        expected = (1, 1, n, cache.length + n)
        if mask is not None and (mask.dtype != dtype or tuple(mask.shape) != expected):
            raise ValueError(
                f"tree mask must be additive {dtype} of shape {expected}, got {mask.dtype} "
                f"{tuple(mask.shape)}"
            )
        if not (self._row_invariant and self.copied and n == 1):
            return self._run(tokens, positions, mask, cache, taps)
        # The library computes a product over one row differently from one over several. So the row
        # is duplicated: it does not see its duplicate, which is then removed from the cache.
        length = cache.length
        hidden, features = self._run(tokens.expand(2), positions.expand(2), None, cache, taps)
        cache.keep(length + 1)
        return hidden[:1], None if features is None else features[:1]

    def _run(
        self,
        tokens: Int64[Tensor, " n"],
        positions: Int64[Tensor, " n"],
        mask: Float[Tensor, "1 1 n keys"] | None,
        cache: TargetCache,
        taps: Sequence[int],
    ) -> Read:
        self._hook(taps)
        self._tapped = {} if taps else None
        try:
            output = self._backbone(
                input_ids=tokens[None],
                attention_mask=mask,
                position_ids=positions[None],
                use_cache=True,
                cache=cache.library,  # type: ignore[attr-defined]
            )
            features = (
                torch.cat([self._tapped[i] for i in taps], dim=-1)
                if self._tapped is not None
                else None
            )
        finally:
            self._tapped = None
        return output.last_hidden_state[0], features

    def _hook(self, taps: Sequence[int]) -> None:
        """Install forward hooks on decoder layers (-1: the embedding) that have none yet."""
        for layer in taps:
            if layer in self._hooked:
                continue
            module = self._backbone.embed_tokens if layer == -1 else self._backbone.layers[layer]
            module.register_forward_hook(self._reader(layer))
            self._hooked.add(layer)

    def _reader(self, layer: int) -> Callable[..., None]:
        def read(module: nn.Module, arguments: object, output: Tensor | tuple[Tensor, ...]) -> None:
            if self._tapped is not None:
                self._tapped[layer] = (output if isinstance(output, Tensor) else output[0])[0]

        return read
