"""Candidates of a depth: the k largest logits of each row (ties by column) and the row's
log-sum-exp.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from dartree_exp.kernels.backend import use_triton

# Up to this size, a stable sort is cheaper than top-k followed by ordering its ties.
_SORT_LIMIT = 4096
# Extra entries, to include all ties of the k-th one; bf16 logits tie in small groups.
_SLACK = 32
# With at least this many values per kept one, top-k and a check for ties take half the time of a
# stable sort on a CPU.
_SORT_RATIO = 16
_TRITON_MAX_K = 256  # above, the sorting network is slower than torch's radix sort


Top = tuple[Float[Tensor, "*rows k"], Int64[Tensor, "*rows k"]]


class Selection(NamedTuple):
    """The result of `candidate_select`, per row."""

    values: Float[Tensor, "*rows k"]  # descending
    columns: Int64[Tensor, "*rows k"]  # ascending for equal values
    logsumexp: Float32[Tensor, "*rows"] | None  # over the whole row, if requested


def candidate_select(
    logits: Float[Tensor, "*rows V"], k: int, logsumexp: bool = False
) -> Selection:
    """The k largest entries of each row of logits, ties by column; 1 <= k <= V.

    `torch.topk` does not define the order of ties, but the released methods do, and trees depend on
    it. Raises ValueError for k out of range.
    """
    columns = logits.shape[-1]
    if not 1 <= k <= columns:
        raise ValueError(f"candidate_select: k = {k}, but a row has {columns} entries")
    if logits.numel() and k <= _TRITON_MAX_K and use_triton(logits):
        from dartree_exp.kernels.candidate_select_triton import candidate_select_triton

        values, chosen, log_z = candidate_select_triton(logits.reshape(-1, columns), k, logsumexp)
        rows = logits.shape[:-1]
        log_z = None if log_z is None else log_z.view(rows)
        return Selection(values.view(*rows, k), chosen.view(*rows, k), log_z)
    return candidate_select_torch(logits, k, logsumexp)


def candidate_select_torch(
    logits: Float[Tensor, "*rows V"], k: int, logsumexp: bool = False
) -> Selection:
    """The reference implementation of `candidate_select`, for any device."""
    values, columns = stable_topk(logits, k)
    return Selection(
        values, columns, torch.logsumexp(logits.float(), dim=-1) if logsumexp else None
    )


def stable_topk(values: Float[Tensor, "*rows n"], k: int) -> Top:
    """The k largest of the last axis, descending, equal values by index: values and indices.

    On a CPU, a stable sort is used only if there are ties. On other devices the check would need a
    synchronisation, so everything is sorted.
    """
    size = values.shape[-1]
    if not values.is_cpu:
        return _sorted_topk(values, k)
    if size <= max(_SORT_LIMIT, k + _SLACK):
        return (
            _topk_or_sort(values, k)
            if values.numel() == size and size > _SORT_RATIO * k
            else _sorted_topk(values, k)
        )
    top, index = values.topk(k + _SLACK)
    if bool((top[..., k - 1] == top[..., -1]).any()):
        return _sorted_topk(values, k)
    index, order = index.sort()
    top, order = top.gather(-1, order).sort(descending=True, stable=True)
    return top[..., :k], index.gather(-1, order)[..., :k]


def _sorted_topk(values: Tensor, k: int) -> Top:
    top, index = values.sort(descending=True, stable=True)
    return top[..., :k], index[..., :k]


def _topk_or_sort(values: Tensor, k: int) -> Top:
    """For one row of values on a CPU, n > k: top-k if there are no ties, else a stable sort."""
    top, index = values.topk(k + 1)  # one more, to detect a tie at the last place
    if len(set(top.flatten().tolist())) <= k:
        return _sorted_topk(values, k)
    return top[..., :k], index[..., :k]
