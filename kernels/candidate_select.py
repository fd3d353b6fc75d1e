"""Candidates of a depth: the k largest logits of each row, equal logits by column, and the row's
log-sum-exp.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from dartree_exp.kernels.backend import use_triton

# Up to here one stable sort is cheaper than top-k plus the work of putting its ties in order.
_SORT_LIMIT = 4096
# Extra entries taken so that a tie at the k-th place is seen whole; bf16 logits tie in small
# groups.
_SLACK = 32
# On a CPU, top-k and a look at its k + 1 values take half the time of a stable sort from this many
# values per kept one.
_SORT_RATIO = 16
_TRITON_MAX_K = 256  # beyond, the sorting network grows and torch's radix sort is the better tool


Top = tuple[Float[Tensor, "*rows k"], Int64[Tensor, "*rows k"]]


class Selection(NamedTuple):
    """What `candidate_select` returns, per row."""

    values: Float[Tensor, "*rows k"]  # descending
    columns: Int64[Tensor, "*rows k"]  # equal values stand in ascending column order
    logsumexp: Float32[Tensor, "*rows"] | None  # over the whole row, if asked for


def candidate_select(
    logits: Float[Tensor, "*rows V"], k: int, logsumexp: bool = False
) -> Selection:
    """The k largest entries of each row of logits, ties by column; 1 <= k <= V.

    `torch.topk` leaves the order of ties open, and the trees depend on it (released methods state a
    rule), hence this function. Raises ValueError for k out of range.
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
    """The reference; same contract as `candidate_select`, on any device."""
    values, columns = stable_topk(logits, k)
    return Selection(
        values, columns, torch.logsumexp(logits.float(), dim=-1) if logsumexp else None
    )


def stable_topk(values: Float[Tensor, "*rows n"], k: int) -> Top:
    """The k largest of the last axis, descending, equal values by index: values and indices.

    Whether values tie is read on the host, and only a selection that has ties is sorted: free on a
    CPU. Elsewhere a look would be a synchronisation, so all is sorted.
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
    """For one row of values on a CPU, n > k: top-k leaves only equal values in any order, so that
    without any it is stable.
    """
    top, index = values.topk(k + 1)  # one more, to see a tie at the last place
    if len(set(top.flatten().tolist())) <= k:
        return _sorted_topk(values, k)
    return top[..., :k], index[..., :k]
