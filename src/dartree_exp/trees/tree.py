"""The draft tree: what a builder hands to verification."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dartree_exp.kernels.tree_mask import visibility


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A prefix tree of N drafted tokens below the root; every tensor has length 1 + N and lives on
    one device.

    Node 0 is the root: the last committed token, not a draft, never counted in a budget. Parents
    come before their children. Builders work by tensor operations, so the invariants are checked on
    demand, by `validate`.
    """

    tokens: Tensor  # int64, target token ids
    parents: Tensor  # int64, node index of the parent; -1 at the root
    depths: Tensor  # int64, 0 at the root
    scores: (
        Tensor  # float32 or float64, log-probability of the path under the drafter; 0 at the root
    )
    ranks: (
        Tensor | None
    )  # int64, place of the token among its depth's candidates in base order; -1 at the root
    supertree_size: int  # non-root nodes the builder kept before pruning; N where nothing is pruned
    supertree: DraftTree | None = (
        None  # what was scored, where it was pruned; for the record, costs no operation
    )
    kept: Tensor | None = None  # int64 [1+N], places of these nodes in the supertree, ascending

    @property
    def num_nodes(self) -> int:
        """N, the root not counted."""
        return self.tokens.shape[0] - 1

    def visibility(self) -> Tensor:
        """bool [1+N, 1+N]: entry (i, j) is true where j is i or an ancestor of i."""
        return visibility(self.parents)

    def validate(self, budget: int | None = None) -> DraftTree:
        """Check every invariant and return self; for tests and debugging, since it reads the tree
        on the host.

        Raises ValueError naming the first node that breaks one: equal lengths, a proper root,
        parents that exist and come first (prefix closed), depths one below the parent's, distinct
        siblings, scores that never rise along a path, at most `budget` nodes.
        """
        fields = {
            "parents": self.parents,
            "depths": self.depths,
            "scores": self.scores,
            "ranks": self.ranks,
        }
        for name, field in fields.items():
            if field is not None and field.shape != self.tokens.shape:
                raise ValueError(
                    f"{name} has shape {tuple(field.shape)}, tokens {tuple(self.tokens.shape)}"
                )
        tokens, parents, depths = self.tokens.tolist(), self.parents.tolist(), self.depths.tolist()
        scores = self.scores.tolist()
        if not tokens or (parents[0], depths[0], scores[0]) != (-1, 0, 0.0):
            raise ValueError("node 0 is not a root: it must have parent -1, depth 0 and score 0")
        if budget is not None and self.num_nodes > budget:
            raise ValueError(f"{self.num_nodes} nodes exceed the budget of {budget}")
        if self.supertree_size < self.num_nodes:
            raise ValueError(
                f"supertree of {self.supertree_size} nodes is smaller than the tree of "
                f"{self.num_nodes}"
            )
        seen: dict[tuple[int, int], int] = {}
        for node in range(1, len(tokens)):
            parent = parents[node]
            if not 0 <= parent < node:
                raise ValueError(
                    f"node {node}: parent {parent} does not come before it (not prefix closed)"
                )
            if depths[node] != depths[parent] + 1:
                raise ValueError(
                    f"node {node}: depth {depths[node]} below parent depth {depths[parent]}"
                )
            twin = seen.setdefault((parent, tokens[node]), node)
            if twin != node:
                raise ValueError(
                    f"nodes {twin} and {node} are siblings with the same token {tokens[node]}"
                )
            if not scores[node] <= scores[parent]:  # NaN fails as well
                raise ValueError(
                    f"node {node}: score {scores[node]} exceeds its parent's {scores[parent]}"
                )
        return self


class Ledger:
    """Grows a tree level by level, without reading anything back from the device.

    The number of nodes of a level is known from shapes alone, so node indices are host integers:
    the nodes of a level are `first`, `first + 1`, ... in the order in which they were added.
    """

    def __init__(self, root: int, device: torch.device) -> None:
        self._device = device
        self._minus_one = torch.full((1,), -1, dtype=torch.int64, device=device)
        self._tokens = [torch.full((1,), root, dtype=torch.int64, device=device)]
        self._places = [self._minus_one]  # of the parent within the level above
        self._ranks = [self._minus_one]
        self._scores = [torch.zeros(1, device=device)]
        self._depths = [0]
        self._above = [0]  # per node, index of the first node of the level above

    def add_level(self, parent: Tensor, token: Tensor, score: Tensor, rank: Tensor) -> None:
        """Append the next level: int64 [M] place of the parent within the level above, token, path
        score, rank.
        """
        size, first = token.shape[0], len(self._depths) - self._tokens[-1].shape[0]
        self._places.append(parent)
        self._tokens.append(token)
        self._scores.append(score)
        self._ranks.append(rank)
        self._depths += [self._depths[-1] + 1] * size
        self._above += [first] * size

    def tree(self) -> DraftTree:
        """Everything added so far."""
        size = len(self._depths)
        tokens, places, ranks = (
            torch.cat([*self._tokens, *self._places, *self._ranks]).view(3, size).unbind()
        )
        depths, above = torch.tensor([self._depths, self._above], device=self._device).unbind()
        return DraftTree(
            tokens, places + above, depths, torch.cat(self._scores), ranks, supertree_size=size - 1
        )
