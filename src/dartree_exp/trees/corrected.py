"""What scorers with a correction head share: corrected logits, and whether they were finite."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dartree_exp.trees.menu import BlockScorer, MenuTable


class CorrectedScorer(BlockScorer):
    """A block scorer with a head that has weights."""

    def __init__(self, table: MenuTable, roots: int | tuple[int, ...], head: Any) -> None:
        super().__init__(table, roots)
        self._head = head
        self._extremes: list[Tensor] = []  # of the corrected logits of every call, [*R] or [] each

    def corrected(
        self, base: Float[Tensor, "*R 1 K"], correction: Float[Tensor, "N K"]
    ) -> Float[Tensor, "*R n K"]:
        """Base logits of a depth with the corrections of its parents, requests concatenated."""
        logits = base + correction.view(*self.table.requests, -1, correction.shape[-1])
        self.watch(logits)
        return logits

    def watch(self, logits: Float[Tensor, "*R n K"]) -> None:
        """Let `finite` take these logits of the head into account."""
        if logits.dim() == 3 and logits.shape[0] > 1:
            self._extremes += torch.aminmax(logits.flatten(1), dim=1)
        else:
            self._extremes += torch.aminmax(logits)

    def finite(self) -> Bool[Tensor, "*R"]:
        finite = super().finite()
        if self._extremes:
            finite = finite & torch.stack(self._extremes).isfinite().all(0)
        return finite

    def fault(self, request: int) -> str:
        if bool(super().finite().flatten()[request]):
            head = type(self._head).__name__
            return f"corrected draft logits: the head ({head}) gave NaN or infinite values"
        return super().fault(request)
