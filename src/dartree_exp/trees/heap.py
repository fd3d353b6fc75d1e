"""Best-first search with a heap: exact, one node at a time, on the host.

With marginal scores this is DDTree (arXiv 2604.12989, algorithm 1). With a path-dependent scorer it
is DominoTree's heap (arXiv 2607.08642) and DARTree's "heap + sequential correction" baseline, with
one correction per popped node.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftTree
from dartree_exp.trees.children import Children
from dartree_exp.trees.lift import EachRequest
from dartree_exp.trees.prune import check_beta
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import TreeSettings

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

    ties: `rank_tuple` or `insertion`; None uses the rule of the published method: insertion order
    (DominoTree) for path-dependent scorers, the rank tuple (DDTree) for the others. Ranks are
    indices in the node's own menu.
    """

    def __init__(self, children: Children, ties: str | None = None, beta: float = 0.0) -> None:
        check_beta(beta)
        if ties is not None and ties not in TIE_RULES:
            raise ValueError(f"unknown tie rule {ties!r}: must be {' or '.join(TIE_RULES)}")
        self._children = children
        self._beta = beta
        self._ties = ties

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree), beta=tree.beta)

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """The `limits.nodes` best prefixes of at most `limits.depth` tokens, in heap order."""
        if scorer.root.numel() > 1:
            return EachRequest(self).build(scorer, limits, draws)
        limit, budget = levels(scorer, limits), limits.nodes
        tie = TIE_RULES[self._ties or ("insertion" if scorer.path_dependent else "rank_tuple")]
        kind = _PathMenus if scorer.path_dependent else _SharedMenus
        menus = kind(scorer, limit, budget, self._children)

        tokens, parents, depths, scores, ranks = [0], [-1], [0], [0.0], [-1]
        paths: list[Ties] = [()]
        # -key, tie key, parent, index in its menu, score
        open_entries: list[tuple[float, Ties, int, int, float]] = []

        def push(parent: int, place: int) -> None:
            menu = menus.of(parent)
            if place < len(menu.scores):
                score = scores[parent] + menu.scores[place]
                key = score + self._beta * (depths[parent] + 1)
                heappush(
                    open_entries, (-key, tie(paths[parent], parent, place), parent, place, score)
                )

        if limit:
            push(0, 0)
        while open_entries and len(parents) <= budget:
            _, path, parent, place, score = heappop(open_entries)
            menu = menus.of(parent)
            node = len(parents)
            tokens.append(menu.tokens[place])
            ranks.append(menu.ranks[place])
            parents.append(parent)
            depths.append(depths[parent] + 1)
            scores.append(score)
            paths.append(path)
            if node == budget:
                break
            push(parent, place + 1)
            if depths[node] < limit:
                menus.open(node, parent, depths[node], tokens[node])
                push(node, 0)
        device, shape = scorer.root.device, (*scorer.root.shape, len(parents))
        fields = torch.tensor([parents, depths, ranks, tokens], device=device)
        parent, depth, rank, token = (field.view(shape) for field in fields)
        token[..., 0] = scorer.root
        return DraftTree(
            tokens=token,
            parents=parent,
            depths=depth,
            scores=torch.tensor(scores, dtype=torch.float64, device=device).view(shape),
            ranks=rank,
            supertree_size=len(parents) - 1,
            levels=max(depths),
        )


def _menus(log_probs: Tensor, ids: Tensor, children: Children, budget: int) -> list[Menu]:
    """Menus of the rows of log_probs [N, K] over ids [N, K], best first, at most `budget`
    entries.
    """
    values, ranks = children.take(log_probs, children.count(log_probs.shape[1], budget))
    values, places = values.sort(dim=-1, descending=True, stable=True)
    values, places = values[:, :budget], places[:, :budget]
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
