"""Level-wise builders: all parents of a depth are scored at once (DARTree, arXiv 2608.13524).

Each depth takes a constant number of tensor operations for any width, candidates, budget and number
of requests, without a loop over nodes. On a GPU nothing is read on the host; on a CPU the selection
sorts only if there are ties, and a tree that will be pruned is grown only where a node can be kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.children import Children
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.prune import Bound, best_nodes, check_beta, subtree
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer


def grow(
    scorer: Scorer,
    widths: list[int],
    children: Children,
    count: int,
    bound: Bound | None = None,
) -> DraftTree:
    """A tree with the `widths[d - 1]` best nodes at depth d, all of them expanded; fewer if there
    are fewer children.

    count: children per parent. Order within a depth: score descending, equal scores by order of the
    parents, then by rank of the candidate. bound: expand only nodes that it leaves open; the
    children of the others are left out, and so are all depths below the last open node.
    """
    state = scorer.start()
    ledger = Ledger(scorer.root)
    scores = None
    for depth, width in enumerate(widths, start=1):
        log_probs, ranks = children.take(scorer.score(state, depth), count)  # [*R, N, count]
        paths = log_probs if scores is None else scores.unsqueeze(-1) + log_probs
        paths = paths.flatten(-2)
        scores, index = stable_topk(paths, min(width, paths.shape[-1]))
        parent = index // count
        rank = index % count if ranks is None else ranks.flatten(-2).gather(-1, index)
        token = scorer.candidates(depth).gather(-1, rank)
        ledger.add_level(parent, token, scores, rank)
        if bound is not None:
            leading = bound.open(scores, depth)
            if not leading:
                break
            scores, parent, token = (
                scores[..., :leading],
                parent[..., :leading],
                token[..., :leading],
            )
        if depth < len(widths):
            state = scorer.advance(state, depth, parent, token)
    return ledger.tree()


class LevelwiseBuilder(ABC):
    """The base of both builders: `grow` with a number of children and the widths of all depths."""

    def __init__(self, children: Children) -> None:
        self._children = children

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree))

    @abstractmethod
    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        """Nodes to keep at each depth; may stop short of `depths`."""

    def supertree(self, scorer: Scorer, limits: Limits, beta: float | None = None) -> DraftTree:
        """The tree before pruning. beta: leave out what cannot be among the `limits.nodes` best by
        score + beta * depth, on a CPU.
        """
        depths = levels(scorer, limits)
        if depths < 1:
            return Ledger(scorer.root).tree()
        count = self._children.count(scorer.candidates(1).shape[-1], limits.nodes)
        widths = self.widths(depths, limits.nodes, count)
        sizes = accumulate(widths, lambda above, width: min(width, above * count), initial=1)
        whole = sum(sizes) - 1
        if beta is None or whole <= limits.nodes or not scorer.root.is_cpu:
            return grow(scorer, widths, self._children, count)
        tree = grow(scorer, widths, self._children, count, Bound(limits.nodes, beta))
        return replace(tree, supertree_size=whole)

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """The verification tree of at most `limits.nodes` nodes and `limits.depth` levels."""
        return self.supertree(scorer, limits)


class FixedBuilder(LevelwiseBuilder):
    """DARTree fixed: the budget is spread evenly over the depths; shallow depths get the
    remainder.
    """

    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        widths: list[int] = []
        remaining, parents = budget, 1
        for left in range(depths, 0, -1):
            parents = min(-(-remaining // left), parents * count)
            remaining -= parents
            if not parents:
                break
            widths.append(parents)
        return widths


class PrunedBuilder(LevelwiseBuilder):
    """DARTree pruned: a supertree of `width` nodes per depth, then the global best `budget` by
    score + beta * depth.

    width: None for the round's budget.

    beta is not used while growing. With width >= budget, all candidates as children and beta = 0
    the tree has the same nodes as the best-first heap, since a node among the global best B has all
    its ancestors among the best B of their depths.
    """

    def __init__(self, children: Children, width: int | None, beta: float) -> None:
        check_beta(beta)
        if width is not None and width < 1:
            raise ValueError(f"width = {width}: must be at least 1 node per depth")
        super().__init__(children)
        self._width = width
        self._beta = beta

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree), tree.width, tree.beta)

    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        # The release also limits the width to the children per parent (its `expansion_count`).
        width = budget if self._width is None else self._width
        return [min(width, count) if self._children.narrow_by_budget else width] * depths

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        supertree = self.supertree(scorer, limits, self._beta)
        if supertree.supertree_size <= limits.nodes:
            return supertree
        kept = best_nodes(supertree, limits.nodes, self._beta)
        return subtree(supertree, kept.sort(-1).values)
