"""The last product of every correction head: codes times the output rows of a depth's
candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class OutputRows:
    """One round's output rows, gathered where copying them pays."""

    weight: Tensor  # [V, E]
    candidate_ids: Tensor  # int64 [D, K]
    rows: tuple[Tensor, ...] | None  # per depth [K, E]; None: K too large to copy them

    @classmethod
    def of(cls, weight: Tensor, candidate_ids: Tensor, drafted: Tensor | None = None) -> OutputRows:
        """candidate_ids: target ids, int64 [D, K]. drafted: [Vd, E], the rows of a restricted draft
        vocabulary.
        """
        depths, count = candidate_ids.shape
        rows: tuple[Tensor, ...] | None
        if candidate_ids.stride(0) == 0:
            # One ascending list for all depths: the columns of the block, for a chain's argmax.
            if count == weight.shape[0]:
                same = weight
            else:
                same = (
                    drafted
                    if drafted is not None and len(drafted) == count
                    else weight[candidate_ids[0]]
                )
            rows = (same,) * depths
        else:
            # Copying pays while the rows are fewer than the table itself; beyond, one product with
            # it is cheaper.
            rows = (
                weight[candidate_ids].unbind() if candidate_ids.numel() <= weight.shape[0] else None
            )
        return cls(weight, candidate_ids, rows)

    @property
    def count(self) -> int:
        """K."""
        return self.candidate_ids.shape[1]

    def product(self, codes: Tensor, depth: int) -> Tensor:
        """[N, K] for codes [N, E] of the parents of `depth`."""
        if self.rows is None:
            return F.linear(codes, self.weight)[:, self.candidate_ids[depth - 1]]
        return F.linear(codes, self.rows[depth - 1])
