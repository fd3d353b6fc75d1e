"""Best-first search with a heap: exact, one node at a time, on the host.

With marginal scores this is DDTree (arXiv 2604.12989, algorithm 1). With a path-dependent scorer it
is DominoTree's heap (arXiv 2607.08642) and DARTree's "heap + sequential correction" baseline, with
one correction per popped node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.children import Children
from dartree_exp.trees.lift import EachRequest
from dartree_exp.trees.prune import check_beta
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import BEST, EXPANSIONS, PUSH_ALL, SPINE_FIRST, TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer

Ties = tuple[int, ...]


def by_rank_tuple(path: Ties, parent: int, place: int) -> Ties:
    """DDTree: the smaller tuple of ranks along the path comes first, a prefix before its
    extensions.
    """
    return (*path, place)


def by_insertion(path: Ties, parent: int, place: int) -> Ties:
    """DominoTree: the entry pushed first comes first; a popped node pushes all its children in
    order.
    """
    return (parent, place)


TIE_RULES: dict[str, Callable[[Ties, int, int], Ties]] = {
    "rank_tuple": by_rank_tuple,
    "insertion": by_insertion,
}


class Menu(NamedTuple):
    """The possible children of a node, best first."""

    scores: list[float]
    tokens: list[int]
    ranks: list[int]


class HeapBuilder:
    """Pops the best open entry, by path score + beta * depth, until the budget is spent.

    A popped node pushes only its next sibling and its best child. The order is that of the full
    heap, because for beta <= 0 no key rises along a path (arXiv 2608.13524, Lemma 1). Path scores
    are sums in double precision, without the depth bonus.

    expansion: `best`, as above. `spine_first`: the greedy chain enters first, then the best open
    entries, so no round accepts fewer drafts than the chain (JetSpec's vLLM fork, `depth_first`).
    `push_all`: the best node is popped and all its children enter the tree at once, which is not
    the tree of the best nodes (JetSpec, arXiv 2606.18394, `accum_logp`).

    ties: `rank_tuple` or `insertion`; None uses the rule of the published method: insertion order
    (DominoTree) for path-dependent scorers, the rank tuple (DDTree) for the others. Ranks are
    indices in the node's own menu.
    """

    def __init__(
        self,
        children: Children,
        ties: str | None = None,
        beta: float = 0.0,
        expansion: str = BEST,
    ) -> None:
        check_beta(beta)
        if ties is not None and ties not in TIE_RULES:
            raise ValueError(f"unknown tie rule {ties!r}: must be {' or '.join(TIE_RULES)}")
        if expansion not in EXPANSIONS:
            raise ValueError(f"expansion {expansion!r}: must be one of {', '.join(EXPANSIONS)}")
        self._children = children
        self._beta = beta
        self._ties = ties
        self._expansion = expansion

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree), beta=tree.beta, expansion=tree.expansion)

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """At most `limits.nodes` prefixes of at most `limits.depth` tokens, in the order in which
        they entered.
        """
        if scorer.root.numel() > 1:
            return EachRequest(self).build(scorer, limits, draws)
        limit, budget = levels(scorer, limits), limits.nodes
        tie = TIE_RULES[self._ties or ("insertion" if scorer.path_dependent else "rank_tuple")]
        kind = _PathMenus if scorer.path_dependent else _SharedMenus
        growing = _Growing(kind(scorer, limit, budget, self._children), self._beta, tie)
        if limit and self._expansion == PUSH_ALL:
            growing.push_all(limit, budget)
        elif limit:
            if self._expansion == SPINE_FIRST:
                growing.spine(limit, budget)
            else:
                growing.push(0, 0)
            growing.best_first(limit, budget)
        return growing.tree(scorer.root)


class _Growing:
    """A tree that grows node by node."""

    def __init__(
        self, menus: _SharedMenus | _PathMenus, beta: float, tie: Callable[[Ties, int, int], Ties]
    ) -> None:
        self._menus, self._beta, self._tie = menus, beta, tie
        self._tokens, self._parents, self._ranks = [0], [-1], [-1]
        self._depths, self._scores = [0], [0.0]
        self._paths: list[Ties] = [()]
        # -key, tie key, parent, index in its menu
        self._entries: list[tuple[float, Ties, int, int]] = []

    def best_first(self, limit: int, budget: int) -> None:
        """Add the best open entry until there are `budget` nodes."""
        while self._entries and len(self._parents) <= budget:
            _, path, parent, place = heappop(self._entries)
            node = self._add(parent, place, path)
            if node == budget:
                break
            self.push(parent, place + 1)
            if self._depths[node] < limit:
                self._open(node)
                self.push(node, 0)

    def spine(self, limit: int, budget: int) -> None:
        """Add the best child of the node added last, until the chain is whole."""
        node = 0
        while self._depths[node] < limit and node < budget:
            self.push(node, 1)
            node = self._add(node, 0, self._tie(self._paths[node], node, 0))
            if self._depths[node] < limit:
                self._open(node)

    def push_all(self, limit: int, budget: int) -> None:
        """Expand the best node that has no children yet: all its children enter, until there are
        `budget` nodes. Equal keys: the node that entered first.
        """
        leaves = [(0.0, 0)]
        while leaves and len(self._parents) <= budget:
            _, node = heappop(leaves)
            if node:
                self._open(node)
            for place in range(len(self._menus.of(node).scores)):
                if len(self._parents) > budget or self._menus.of(node).scores[place] == -math.inf:
                    break
                child = self._add(node, place, ())
                if self._depths[child] < limit:
                    heappush(leaves, (-self._key(self._scores[child], self._depths[child]), child))

    def push(self, parent: int, place: int) -> None:
        """Open an entry, if the parent's menu has a possible one at `place`."""
        menu = self._menus.of(parent)
        if place < len(menu.scores) and menu.scores[place] > -math.inf:
            score = self._scores[parent] + menu.scores[place]
            key = self._key(score, self._depths[parent] + 1)
            path = self._tie(self._paths[parent], parent, place)
            heappush(self._entries, (-key, path, parent, place))

    def _key(self, score: float, depth: int) -> float:
        return score + self._beta * depth

    def _open(self, node: int) -> None:
        parent = self._parents[node]
        self._menus.open(node, parent, self._depths[node], self._tokens[node])

    def _add(self, parent: int, place: int, path: Ties) -> int:
        menu, node = self._menus.of(parent), len(self._parents)
        self._tokens.append(menu.tokens[place])
        self._ranks.append(menu.ranks[place])
        self._parents.append(parent)
        self._depths.append(self._depths[parent] + 1)
        self._scores.append(self._scores[parent] + menu.scores[place])
        self._paths.append(path)
        return node

    def tree(self, root: Tensor) -> DraftTree:
        device, shape = root.device, (*root.shape, len(self._parents))
        lists = [self._parents, self._depths, self._ranks, self._tokens]
        fields = torch.tensor(lists, device=device)
        parent, depth, rank, token = (field.view(shape) for field in fields)
        token[..., 0] = root
        return DraftTree(
            tokens=token,
            parents=parent,
            depths=depth,
            scores=torch.tensor(self._scores, dtype=torch.float64, device=device).view(shape),
            ranks=rank,
            supertree_size=len(self._parents) - 1,
            levels=max(self._depths),
        )


def _menus(log_probs: Tensor, ids: Tensor, children: Children, budget: int) -> list[Menu]:
    """Menus of the rows of log_probs [N, K] over ids [N, K], best first, at most `budget`
    entries.
    """
    values, ranks = children.take(log_probs, children.count(log_probs.shape[1], budget))
    values, places = stable_topk(values, min(budget, values.shape[1]))
    ranks = places if ranks is None else ranks.gather(1, places)
    return [
        Menu(*rows)
        for rows in zip(values.tolist(), ids.gather(1, ranks).tolist(), ranks.tolist(), strict=True)
    ]


class _SharedMenus:
    """One menu per depth, all fetched at once."""

    def __init__(self, scorer: Scorer, limit: int, budget: int, children: Children) -> None:
        state = scorer.start()
        self._depths = {0: 0}
        depths = range(1, limit + 1)
        if limit:
            rows = torch.cat([scorer.score(state, depth).flatten(0, -2) for depth in depths])
            ids = torch.stack([scorer.candidates(depth).flatten() for depth in depths])
            self._menus = _menus(rows, ids, children, budget)

    def of(self, node: int) -> Menu:
        return self._menus[self._depths[node]]

    def open(self, node: int, parent: int, depth: int, token: int) -> None:
        self._depths[node] = depth


class _PathMenus:
    """One menu per node from its own state: one correction and one state step per popped node."""

    def __init__(self, scorer: Scorer, limit: int, budget: int, children: Children) -> None:
        self._scorer = scorer
        self._budget = budget
        self._children = children
        self._states = {0: scorer.start()}
        self._only = torch.zeros_like(scorer.root).unsqueeze(-1)
        self._menus = {0: self._menu(0, 1)} if limit else {}

    def of(self, node: int) -> Menu:
        return self._menus[node]

    def open(self, node: int, parent: int, depth: int, token: int) -> None:
        read = torch.full_like(self._only, token)
        self._states[node] = self._scorer.advance(self._states[parent], depth, self._only, read)
        self._menus[node] = self._menu(node, depth + 1)

    def _menu(self, node: int, depth: int) -> Menu:
        row = self._scorer.score(self._states[node], depth).flatten(0, -2)
        ids = self._scorer.candidates(depth).flatten()[None]
        return _menus(row, ids, self._children, self._budget)[0]
