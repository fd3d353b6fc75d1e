"""The last product of every correction head: codes times the output rows of a depth's
candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def for_rows(slot: Tensor, rows: int) -> Tensor:
    """A slot's vector [*R, E] for each of its request's rows: [rows, E], or [E] or [1, E] of one
    request, which broadcasts.
    """
    if slot.dim() == 1 or slot.shape[0] == 1:
        return slot
    return slot.repeat_interleave(rows // slot.shape[0], dim=0)


@dataclass(frozen=True)
class OutputRows:
    """One round's output rows, gathered where copying them pays."""

    weight: Tensor  # [V, E]
    candidate_ids: Tensor  # int64 [*R, D, K]
    rows: tuple[Tensor, ...] | None  # per depth [K, E] or [R, K, E]; None: K too large to copy them

    @classmethod
    def of(cls, weight: Tensor, candidate_ids: Tensor, drafted: Tensor | None = None) -> OutputRows:
        """candidate_ids: target ids, int64 [*R, D, K]. drafted: [Vd, E], the rows of a restricted
        draft vocabulary.
        """
        if candidate_ids.dim() == 3 and candidate_ids.shape[0] == 1:
            candidate_ids = candidate_ids[0]
        depths, count = candidate_ids.shape[-2:]
        rows: tuple[Tensor, ...] | None
        if candidate_ids.stride(-2) == 0:
            # One ascending list for all depths: the columns of the block, for a chain's argmax.
            if count == weight.shape[0]:
                same = weight
            elif drafted is not None and len(drafted) == count:
                same = drafted
            else:
                columns = candidate_ids[..., 0, :] if depths else candidate_ids
                same = weight[columns[0] if columns.dim() == 2 and len(columns) else columns]
            rows = (same,) * depths
        elif candidate_ids.numel() <= weight.shape[0]:
            rows = weight[candidate_ids].unbind(-3)
        else:  # one product with the whole table is cheaper than a copy of more rows than it has
            rows = None
        return cls(weight, candidate_ids, rows)

    @property
    def count(self) -> int:
        """K."""
        return self.candidate_ids.shape[-1]

    def product(self, codes: Tensor, depth: int) -> Tensor:
        """[N, K] for codes [N, E] of the parents of `depth`, those of all requests below each
        other.
        """
        if self.rows is None:
            ids = self.candidate_ids[..., depth - 1, :]
            scores = F.linear(codes, self.weight)
            if ids.dim() == 1:
                return scores[:, ids]
            return scores.gather(1, ids.repeat_interleave(len(codes) // len(ids), dim=0))
        rows = self.rows[depth - 1]
        if rows.dim() == 2:
            return F.linear(codes, rows)
        return torch.bmm(codes.unflatten(0, (len(rows), -1)), rows.mT).flatten(0, 1)
