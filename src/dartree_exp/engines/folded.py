"""Attention of new rows over a cache, in memory that is allocated once.

The query heads that share a key head are folded into the rows of one product, so each key is read
once. Sums over keys are taken in float64, if rows must not depend on each other: the order of a
sum, which differs between a plain step and a tree, then changes it by 1e-16, which rounding to the
model's dtype hides (docs/decisions/0006-row-invariance.md).
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, log2

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from dartree_exp.engines.cache import TargetCache

KEYS = 16  # scores are computed for a multiple of this many keys, and for at least
QUERIES = 8  # this many queries: the library then adds up every score in the same order
LARGE = 128  # from so many queries for each key head, heads are multiplied one after the other
MOST_SCORES = 2**22  # computed at once; the rows of a long prompt are split
Heads = Float[Tensor, "kv_heads n group head_dim"]
Keys = Float[Tensor, "kv_heads keys head_dim"]
_ONES = 8  # columns beside the values, of which the first is one: it sums the weights


class FoldedCache(TargetCache):
    """Keys [layers, kv_heads, capacity, head_dim] in at least float32, and values [layers,
    kv_heads, capacity, head_dim + 8] in the dtype of the sums over keys.
    """

    def __init__(self, capacity: int, keys: Tensor, values: Tensor) -> None:
        super().__init__(capacity, keys, values)
        self.keys, self.values = keys, values


class FoldedAttention:
    """heads, kv_heads, head_dim: the model's. scaling: of the scores. dtype: the model's."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scaling: float,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._kv, self._group, self._dim = kv_heads, heads // kv_heads, head_dim
        self._scaling = scaling * log2(e)  # the exponential has base 2, which is faster
        self._dtype, self._device = dtype, device
        self._wide = torch.promote_types(dtype, torch.float32)
        self._scores, self._weights = self._empty(0, self._wide), self._empty(0, self._wide)
        self.sums = self._wide  # dtype of sums over keys in new caches; settable

    def _empty(self, size: int, dtype: torch.dtype) -> Tensor:
        with torch.inference_mode(False):  # it outlives the caller's mode
            return torch.empty(size, dtype=dtype, device=self._device)

    def cache(self, layers: int, capacity: int) -> FoldedCache:
        """An empty cache; also the memory for attention over its rows."""
        padded = -(-capacity // KEYS) * KEYS
        shape = layers, self._kv
        values = torch.zeros(
            *shape, capacity, self._dim + _ONES, dtype=self.sums, device=self._device
        )
        values[..., self._dim] = 1
        keys = torch.zeros(*shape, padded, self._dim, dtype=self._wide, device=self._device)
        queries = max(QUERIES, self._rows(padded) * self._group)
        size = self._kv * queries * padded
        if len(self._scores) < size:
            self._scores = self._empty(size, self._wide)
        if self.sums != self._wide and len(self._weights) < size:
            self._weights = self._empty(size, self.sums)
        return FoldedCache(capacity, keys, values)

    def sample_scores(self, queries: Float[Tensor, "n head_dim"]) -> Float[Tensor, "n keys"]:
        """Scores with 16 fixed keys among others, as many as `n` decides.

        For the self-test: neither the number of queries nor that of keys may change a score.
        """
        keys = torch.randn(KEYS, self._dim, generator=torch.Generator().manual_seed(0))
        keys = keys.to(queries).to(self._wide).repeat(1 + 7 * len(queries) % 61, 1)
        rows = F.pad(queries.to(self._wide), (0, 0, 0, max(0, QUERIES - len(queries))))
        scores = rows.new_empty(self._kv, len(rows), len(keys))
        rows, keys = (x.expand(self._kv, -1, -1) for x in (rows, keys.t()))
        self._score(scores, rows, keys)
        return scores[0, : len(queries), :KEYS]

    def _score(self, out: Tensor, queries: Tensor, keys: Tensor) -> None:
        torch.baddbmm(out, queries, keys, beta=0, alpha=self._scaling, out=out)

    def _rows(self, keys: int) -> int:
        """Rows whose scores are computed at once."""
        return max(1, min(keys, MOST_SCORES // (self._kv * self._group * keys)))

    def over(
        self, cache: FoldedCache, rows: int, hidden: Float[Tensor, "n n"] | None
    ) -> Callable[[int, Heads, Keys, Keys], Float[Tensor, "n _"]]:
        """The attention of the last `rows` rows of a cache, for every layer of one forward.

        hidden: added to the scores among the new rows, -inf where a row does not see another; None:
        they are causal. New rows see all earlier ones. The result takes the layer's number,
        queries, keys and values (in at least float32), writes keys and values to the cache, and
        returns the heads' outputs side by side, in the model's dtype, in a buffer that the next
        call overwrites.
        """
        length = cache.length
        new_keys = cache.keys[:, :, length - rows : length].unbind()
        new_values = cache.values[:, :, length - rows : length, : self._dim].unbind()
        out = torch.empty(
            rows, self._kv, self._group, self._dim, dtype=self._dtype, device=self._device
        )
        outputs, flat = out.transpose(0, 1), out.view(rows, -1)
        parts, step = [], self._rows(cache.keys.shape[2])
        for first in range(0, rows, step):
            last = min(rows, first + step)
            if hidden is None:
                seen, among = length - rows + last, _causal(last - first, cache.keys)
            else:
                seen, among = length, hidden[first:last]
            parts.append((slice(first, last), self._part(cache, last - first, seen, among)))

        def attend(layer: int, queries: Heads, keys: Keys, values: Keys) -> Tensor:
            new_keys[layer].copy_(keys)
            new_values[layer].copy_(values)
            for part, of in parts:
                of(layer, queries[:, part], outputs[:, part])
            return flat

        return attend

    def _part(
        self, cache: FoldedCache, n: int, seen: int, hidden: Float[Tensor, "n m"] | None
    ) -> Callable[[int, Tensor, Tensor], None]:
        """The attention of n rows over the first `seen` keys. hidden: added to the scores of the
        last m keys. All views are made here, because making them takes longer than a step's
        arithmetic.
        """
        kv, group, dim = self._kv, self._group, self._dim
        count, padded = n * group, -(-seen // KEYS) * KEYS
        rows = max(count, QUERIES)
        folded = cache.keys.new_zeros(kv, rows, dim)
        into = folded[:, :count].unflatten(1, (n, group))
        keys = cache.keys[:, :, :padded].transpose(2, 3).unbind()
        values = cache.values[:, :, :seen].unbind()
        every = self._scores[: kv * rows * padded].view(kv, rows, padded)
        scores = every[:, :count, :seen]
        among = None
        if hidden is not None:
            among = scores[..., seen - hidden.shape[1] :].unflatten(1, (n, group))
            hidden = hidden[:, None]
        weights = scores
        if cache.values.dtype != scores.dtype:
            weights = self._weights[: kv * count * seen].view(kv, count, seen)
        sums = cache.values.new_empty(kv, count, dim + _ONES)
        # One product after the other uses two cores better than a batch of three large ones.
        single = list(zip(weights, sums, strict=True)) if count >= LARGE else []
        total = sums[..., dim : dim + 1].unflatten(1, (n, group))
        parts = sums[..., :dim].unflatten(1, (n, group))

        def attend(layer: int, queries: Tensor, out: Tensor) -> None:
            into.copy_(queries)
            self._score(every, folded, keys[layer])
            if among is not None and hidden is not None:
                among.add_(hidden)
            # The exponential is taken in the dtype of the sums, because its last bit is another one
            # at the end of a row, where it is not computed by vector instructions.
            torch.sub(scores, scores.amax(-1, keepdim=True), out=weights).exp2_()
            if single:
                for (weight, result), value in zip(single, values[layer], strict=True):
                    torch.mm(weight, value, out=result)
            else:
                torch.bmm(weights, values[layer], out=sums)
            torch.div(parts, total, out=out)

        return attend


def _causal(n: int, like: Tensor) -> Tensor | None:
    """Additive mask [n, n] of rows that see the rows before them; None for one row."""
    return None if n == 1 else like.new_full((n, n), -torch.inf).triu(1)
