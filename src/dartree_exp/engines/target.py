"""The target: a transformers causal language model with five methods (prefill, score, step, verify,
new_cache).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.engines.cache import (
    TargetCache,
    UnsupportedTargetError,
    check_rewindable,
    smallest_window,
)
from dartree_exp.engines.codec import Codec

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM

Read = tuple[Float[Tensor, "n H"], Float[Tensor, "n features"] | None]

HALF = (torch.bfloat16, torch.float16)
"""Dtypes in which the order of additions can change the ids."""


@dataclass
class Output:
    """The result of one target forward for n rows of one request, in the model's dtype.

    logits: of all rows (prefill: only of the last one). features: the tapped layers' outputs,
    concatenated in the order of the taps; None without taps. hidden: final-normed.
    """

    logits: Float[Tensor, "rows V"]
    features: Float[Tensor, "n features"] | None
    hidden: Float[Tensor, "n H"]


class Target:
    """Batch size 1, evaluation only. All tensors are on `device`; logits have `dtype`."""

    def __init__(
        self,
        model: LlamaForCausalLM | Qwen3ForCausalLM,
        *,
        name: str,
        tokenizer: Codec,
        eos_ids: Sequence[int],
        weights_sha256: Callable[[], str],
    ) -> None:
        """weights_sha256: called at most once, when the digest is needed.

        Raises UnsupportedTargetError for a model whose cache cannot be rewound exactly.
        """
        config = model.config
        check_rewindable(config)
        self.name = name
        self.tokenizer = tokenizer
        self.eos_ids = tuple(int(i) for i in eos_ids)
        self.vocab_size = int(config.vocab_size)
        self.hidden_size = int(config.hidden_size)
        self.num_layers = int(config.num_hidden_layers)
        self.max_positions = int(config.max_position_embeddings)
        self.window = smallest_window(config)
        self._model = model.eval().requires_grad_(False)
        self._backbone = model.model
        self._head = model.lm_head
        self._weights_sha256 = weights_sha256
        self._kv_heads = int(config.num_key_value_heads or config.num_attention_heads)
        self._head_dim = int(
            getattr(config, "head_dim", None) or self.hidden_size // config.num_attention_heads
        )
        self._tapped: dict[int, Tensor] | None = None
        self._hooked: set[int] = set()
        self._row_invariant = False

    @property
    def row_invariant(self) -> bool:
        """Whether attention accumulates in float64 and no product is computed over a single row.

        Settable. On a machine that passes `verify.rows.self_test`, a row's bits are then the same
        alone, in a prompt and in any tree. Otherwise the library's fused attention is used, which
        is faster, but rows differ by rounding.
        """
        return self._row_invariant

    @row_invariant.setter
    def row_invariant(self, on: bool) -> None:
        from dartree_exp.engines.attention import ROW_INVARIANT

        self._model.set_attn_implementation(ROW_INVARIANT if on else "sdpa")
        self._row_invariant = on

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head_weight.dtype

    @property
    def device(self) -> torch.device:
        return self.lm_head_weight.device

    @property
    def embed_weight(self) -> Float[Tensor, "V H"]:
        """Input embedding; the same tensor as `lm_head_weight` if the two are tied."""
        return self._backbone.embed_tokens.weight

    @property
    def lm_head_weight(self) -> Float[Tensor, "V H"]:
        """Output projection."""
        return self._head.weight

    def products(self) -> list[nn.Linear]:
        """One linear layer of each weight shape in the model, including the head."""
        shapes = {
            tuple(m.weight.shape): m for m in self._model.modules() if isinstance(m, nn.Linear)
        }
        return list(shapes.values())

    @cached_property
    def weights_sha256(self) -> str:
        """Hex digest that identifies the weights."""
        return self._weights_sha256()

    def new_cache(self, capacity: int) -> TargetCache:
        """An empty cache for `capacity` rows (prompt, answer and the largest tree).

        Raises UnsupportedTargetError if a sliding window is smaller: the index of a row in a
        compacted cache does not tell whether it has left the window.
        """
        if self.window is not None and capacity > self.window:
            raise UnsupportedTargetError(
                f"{self.name}: sliding window of {self.window} rows, {capacity} are needed; such a "
                "cache cannot be rewound exactly"
            )
        return TargetCache(
            layers=self.num_layers,
            kv_heads=self._kv_heads,
            head_dim=self._head_dim,
            capacity=capacity + self._row_invariant,  # a row for the duplicate in `_run`
            dtype=self.dtype,
            device=self.device,
        )

    @torch.no_grad()
    def prefill(self, ids: Sequence[int], cache: TargetCache, taps: Sequence[int] = ()) -> Output:
        """Read `ids` causally after the cached rows; logits only of the last row.

        Raises ValueError if there are no ids.
        """
        if not len(ids):
            raise ValueError("prefill needs at least one token id")
        hidden, features = self._read(ids, cache, taps)
        return Output(self._logits(hidden[-1:]), features, hidden)

    @torch.no_grad()
    def score(self, ids: Sequence[int], cache: TargetCache) -> Float[Tensor, "n V"]:
        """Read `ids` causally after the cached rows; logits of every row."""
        return self._logits(self._read(ids, cache, ())[0])

    @torch.no_grad()
    def step(self, token: int, cache: TargetCache) -> Float[Tensor, " V"]:
        """Logits after one more token: a plain autoregressive step."""
        tokens = torch.tensor([[token]], dtype=torch.int64, device=self.device)
        positions = torch.tensor([[cache.length]], dtype=torch.int64, device=self.device)
        hidden, _ = self._run(tokens, positions, None, cache, ())
        return self._logits(hidden)[0]

    @torch.no_grad()
    def verify(
        self,
        tokens: Int64[Tensor, " n"],
        position_ids: Int64[Tensor, "1 n"],
        mask: Tensor,
        cache: TargetCache,
        taps: Sequence[int] = (),
    ) -> Output:
        """Read a tree of n tokens in one pass; all n rows enter the cache.

        position_ids: the root's position + depth. mask: additive float [1, 1, n, cache.length + n]
        in the model's dtype, 0 where visible, finfo.min where hidden. Raises ValueError for a mask
        of the wrong shape or dtype (a boolean mask is silently wrong under eager attention).
        """
        n = tokens.shape[0]
        expected = (1, 1, n, cache.length + n)
        if mask.dtype != self.dtype or tuple(mask.shape) != expected:
            raise ValueError(
                f"tree mask must be additive {self.dtype} of shape {expected}, got {mask.dtype} "
                f"{tuple(mask.shape)}"
            )
        hidden, features = self._run(tokens[None], position_ids, mask, cache, taps)
        return Output(self._logits(hidden), features, hidden)

    def _logits(self, hidden: Float[Tensor, "n H"]) -> Float[Tensor, "n V"]:
        """Logits; with `row_invariant`, the product is computed over at least two rows."""
        if self._row_invariant and hidden.shape[0] == 1:
            return self._head(hidden.expand(2, -1))[:1]
        return self._head(hidden)

    def _read(self, ids: Sequence[int], cache: TargetCache, taps: Sequence[int]) -> Read:
        """`_run` of ids after the cached rows, with a causal mask."""
        start = cache.length
        tokens = torch.tensor([list(ids)], dtype=torch.int64, device=self.device)
        positions = torch.arange(start, start + len(ids), device=self.device)[None]
        return self._run(tokens, positions, None, cache, taps)

    def _run(
        self,
        tokens: Int64[Tensor, "1 n"],
        positions: Int64[Tensor, "1 n"],
        mask: Float[Tensor, "1 1 n keys"] | None,
        cache: TargetCache,
        taps: Sequence[int],
    ) -> Read:
        """Backbone forward: final-normed hidden states, tapped features or None."""
        if not (self._row_invariant and tokens.shape[1] == 1):
            return self._forward(tokens, positions, mask, cache, taps)
        # The library computes a product over one row differently from one over several. So the row
        # is duplicated: it does not see its duplicate, which is then removed from the cache.
        length = cache.length
        hidden, features = self._forward(
            tokens.expand(1, 2), positions.expand(1, 2), None, cache, taps
        )
        cache.keep(length + 1)
        return hidden[:1], None if features is None else features[:1]

    def _forward(
        self,
        tokens: Int64[Tensor, "1 n"],
        positions: Int64[Tensor, "1 n"],
        mask: Float[Tensor, "1 1 n keys"] | None,
        cache: TargetCache,
        taps: Sequence[int],
    ) -> Read:
        self._hook(taps)
        self._tapped = {} if taps else None
        try:
            output = self._backbone(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                cache=cache.library,
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
        """Install forward hooks on decoder layers (-1: the embedding) that have none yet. Raises
        ValueError for a layer that does not exist.
        """
        for layer in taps:
            if layer in self._hooked:
                continue
            if not -1 <= layer < self.num_layers:
                raise ValueError(
                    f"layer {layer} cannot be tapped: {self.name} has layers "
                    f"0..{self.num_layers - 1} (-1: the embedding)"
                )
            module = self._backbone.embed_tokens if layer == -1 else self._backbone.layers[layer]
            module.register_forward_hook(self._reader(layer))
            self._hooked.add(layer)

    def _reader(self, layer: int) -> Callable[..., None]:
        def read(module: nn.Module, arguments: object, output: Tensor | tuple[Tensor, ...]) -> None:
            if self._tapped is not None:
                self._tapped[layer] = (output if isinstance(output, Tensor) else output[0])[0]

        return read
