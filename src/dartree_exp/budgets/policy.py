"""How many nodes a round may verify. Policies see the round and the finished tree, never a
builder's inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

from dartree_exp.drafters.block import Block
from dartree_exp.trees.tree import DraftTree


@dataclass(frozen=True)
class RoundState:
    """What a policy may look at: the round's number, the root's absolute position, and the drafted
    block.
    """

    index: int
    start: int
    block: Block


class BudgetPolicy(Protocol):
    """`plan` is asked before the tree is built, `trim` after; `observe` tells what came of it."""

    def plan(self, state: RoundState) -> int:
        """Non-root nodes the coming round may verify, at most `tree.budget`."""
        ...

    def trim(self, state: RoundState, tree: DraftTree) -> DraftTree:
        """The nodes of the built tree to verify: itself, or a prefix-closed part of it."""
        ...

    def observe(self, round_: Any) -> None: ...


@dataclass(frozen=True)
class FixedBudget:
    """Always `tree.budget` nodes (every published tree method's default)."""

    budget: int

    @classmethod
    def from_settings(cls, settings: Any, budget: int, confidence: Any) -> Self:
        return cls(budget)

    def plan(self, state: RoundState) -> int:
        return self.budget

    def trim(self, state: RoundState, tree: DraftTree) -> DraftTree:
        return tree

    def observe(self, round_: Any) -> None:
        return None
