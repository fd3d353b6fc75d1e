"""The last product of every correction head: codes times the candidates' output rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor


def for_rows(slot: Float[Tensor, "*R E"], rows: int) -> Float[Tensor, "*_ E"]:
    """A slot's vector repeated for its request's rows: [rows, E]; for one request [E] or [1, E],
    which broadcasts.
    """
    if slot.dim() == 1 or slot.shape[0] == 1:
        return slot
    return slot.repeat_interleave(rows // slot.shape[0], dim=0)


@dataclass(frozen=True)
class OutputRows:
    """One round's output rows, copied if that is cheaper than a product with the whole table."""

    weight: Float[Tensor, "V E"]
    candidate_ids: Int64[Tensor, "*R D K"]
    rows: tuple[Float[Tensor, "*_ K E"], ...] | None  # per depth; None: K too large to copy them

    @classmethod
    def of(
        cls,
        weight: Float[Tensor, "V E"],
        candidate_ids: Int64[Tensor, "*R D K"],
        drafted: Float[Tensor, "Vd E"] | None = None,
    ) -> OutputRows:
        """candidate_ids: target ids. drafted: output rows of a restricted draft vocabulary."""
        if candidate_ids.dim() == 3 and candidate_ids.shape[0] == 1:
            candidate_ids = candidate_ids[0]
        depths, count = candidate_ids.shape[-2:]
        rows: tuple[Tensor, ...] | None
        if candidate_ids.stride(-2) == 0:
            # The same ids at all depths (all columns of the block, for a chain's argmax).
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
        else:  # copying more rows than the table has costs more than a product with the table
            rows = None
        return cls(weight, candidate_ids, rows)

    @property
    def count(self) -> int:
        """K."""
        return self.candidate_ids.shape[-1]

    def product(self, codes: Float[Tensor, "N E"], depth: int) -> Float[Tensor, "N K"]:
        """Scores of the candidates at `depth`. codes: one per parent, requests concatenated."""
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
