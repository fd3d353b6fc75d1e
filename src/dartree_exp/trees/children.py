"""Which candidates of a depth a parent may have as children, for heap and level-wise builders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.trees.spec import CHILD_ORDERS, OWN, TreeSettings


@dataclass(frozen=True)
class Children:
    """At most `limit` children per parent (None: every candidate), taken in `order`.

    order: `base`, the first of the menu (released DARTree), or `corrected`, the best by score
    (DominoTree). narrow_by_budget: at most as many children as the budget, as in released DARTree;
    log Z is still over all candidates.
    """

    limit: int | None = None
    order: str = "base"
    narrow_by_budget: bool = False

    def __post_init__(self) -> None:
        if self.order not in CHILD_ORDERS:
            raise ValueError(f"child order {self.order!r}: must be {' or '.join(CHILD_ORDERS)}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"children = {self.limit}: must be at least 1")

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        # The candidates of a drafter's own scorer have no base order.
        order = "corrected" if tree.scoring == OWN else tree.child_order
        return cls(tree.children, order, tree.narrow_by_budget)

    def count(self, candidates: int, budget: int) -> int:
        """Children per parent, given K candidates and the round's budget; at least one."""
        count = candidates if self.limit is None else min(self.limit, candidates)
        return max(1, min(count, budget)) if self.narrow_by_budget else count

    def take(
        self, log_probs: Float[Tensor, "*parents K"], count: int
    ) -> tuple[Float[Tensor, "*parents {count}"], Int64[Tensor, "*parents {count}"] | None]:
        """The `count` allowed entries of each row of log-probabilities, and their ranks.

        Ranks are None if they are 0 .. count - 1 in every row. Ties go to the smaller rank.
        """
        if count == log_probs.shape[-1]:
            return log_probs, None
        if self.order == "base":
            return log_probs[..., :count], None
        values, ranks = log_probs.sort(dim=-1, descending=True, stable=True)
        return values[..., :count], ranks[..., :count]
