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
from torch import Tensor

from dartree_exp.engines.cache import (
    TargetCache,
    UnsupportedTargetError,
    check_rewindable,
    smallest_window,
)
from dartree_exp.engines.choose import choose
from dartree_exp.engines.codec import Codec
from dartree_exp.engines.forward import Product, Read, TargetForward
from dartree_exp.engines.spec import ENGINES

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM


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
        engine: str | None = "eager",
    ) -> None:
        """weights_sha256: called at most once, when the digest is needed. engine: whose forward
        computes the model, and may take over its weights; None: the fastest.

        Raises UnsupportedTargetError for a model whose cache cannot be rewound exactly, UserError
        for an engine that does not compute it.
        """
        config = model.config
        check_rewindable(config)
        self.name = name
        self.architecture = type(model).__name__
        self.tokenizer = tokenizer
        self.eos_ids = tuple(int(i) for i in eos_ids)
        self.vocab_size = int(config.vocab_size)
        self.hidden_size = int(config.hidden_size)
        self.num_layers = int(config.num_hidden_layers)
        self.max_positions = int(config.max_position_embeddings)
        self.window = smallest_window(config)
        self._model = model.eval().requires_grad_(False)
        self._embed = model.model.embed_tokens.weight
        self._lm_head = model.lm_head.weight
        self._weights_sha256 = weights_sha256
        self.engine = choose(engine, model)
        self.forward: TargetForward = ENGINES[self.engine].load_forward()(model)

    @property
    def row_invariant(self) -> bool:
        """Whether attention accumulates in float64 and no product is computed over a single row.

        Settable. On a machine that passes `verify.rows.self_test`, a row's bits are then the same
        alone, in a prompt and in any tree. Otherwise the library's fused attention is used, which
        is faster, but rows differ by rounding.
        """
        return self.forward.row_invariant

    @row_invariant.setter
    def row_invariant(self, on: bool) -> None:
        self.forward.row_invariant = on

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head_weight.dtype

    @property
    def device(self) -> torch.device:
        return self.lm_head_weight.device

    @property
    def embed_weight(self) -> Float[Tensor, "V H"]:
        """Input embedding; the same tensor as `lm_head_weight` if the two are tied."""
        return self._embed

    @property
    def lm_head_weight(self) -> Float[Tensor, "V H"]:
        """Output projection."""
        return self._lm_head

    def products(self) -> list[Product]:
        """One product with each weight shape of the model, including the head."""
        return self.forward.products()

    def mask(self, parents: Int64[Tensor, " n"], past: int) -> Tensor:
        """What the rows of a tree see, for `verify`. parents: of each row, -1 at the root. past:
        rows in the cache.
        """
        return self.forward.mask(parents, past)

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
        if capacity < 1:
            raise ValueError(f"cache capacity must be at least 1, got {capacity}")
        return self.forward.cache(capacity)

    @torch.no_grad()
    def prefill(self, ids: Sequence[int], cache: TargetCache, taps: Sequence[int] = ()) -> Output:
        """Read `ids` causally after the cached rows; logits only of the last row.

        Raises ValueError if there are no ids.
        """
        if not len(ids):
            raise ValueError("prefill needs at least one token id")
        hidden, features = self._read(ids, cache, taps)
        return Output(self.forward.logits(hidden[-1:]), features, hidden)

    @torch.no_grad()
    def score(self, ids: Sequence[int], cache: TargetCache) -> Float[Tensor, "n V"]:
        """Read `ids` causally after the cached rows; logits of every row."""
        return self.forward.logits(self._read(ids, cache, ())[0])

    @torch.no_grad()
    def step(self, token: int, cache: TargetCache) -> Float[Tensor, " V"]:
        """Logits after one more token: a plain autoregressive step."""
        return self.forward.logits(self._read([token], cache, ())[0])[0]

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

        position_ids: the root's position + depth. mask: of `mask`, for these rows and this cache.
        Raises ValueError for a mask of the wrong shape or dtype.
        """
        self._check_taps(taps)
        hidden, features = self.forward.hidden(tokens, position_ids[0], mask, cache, taps)
        return Output(self.forward.logits(hidden), features, hidden)

    def _read(self, ids: Sequence[int], cache: TargetCache, taps: Sequence[int]) -> Read:
        """Ids after the cached rows, causally."""
        self._check_taps(taps)
        start = cache.length
        tokens = torch.tensor(list(ids), dtype=torch.int64, device=self.device)
        positions = torch.arange(start, start + len(ids), device=self.device)
        return self.forward.hidden(tokens, positions, None, cache, taps)

    def _check_taps(self, taps: Sequence[int]) -> None:
        for layer in taps:
            if not -1 <= layer < self.num_layers:
                raise ValueError(
                    f"layer {layer} cannot be tapped: {self.name} has layers "
                    f"0..{self.num_layers - 1} (-1: the embedding)"
                )
