"""Pool builders: every scored child may enter the tree, not only the expanded nodes.

    pool <- {};  frontier <- {root}
    for each depth:
        pool     <- pool + the `children` best children of every frontier node
        frontier <- the `width` best new nodes
    tree <- the B best of the pool

PCTree (arXiv 2608.02123, algorithm 1) with children = width = k; DominoTree's depth-synchronous
frontier (arXiv 2607.08642) with width = B. Each depth takes a constant number of tensor operations;
nothing is read on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftTree, Limits
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.prune import best_nodes, subtree
from dartree_exp.trees.spec import TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Scorer


class PoolBuilder:
    """PCTree: nodes of the tree keep the order of the pool: depth, then frontier order, then order
    among the siblings.

    children: most children per parent, the best by corrected score; None for every candidate.
    width: W, nodes expanded per depth; None for the round's budget.
    Equal scores go to the smaller pool index, hence to the shallower node.

    With width >= budget and the same children the tree has the nodes of the best-first heap, since
    a node among the best B has its ancestors among the best B of their depths.
    """

    def __init__(self, children: int | None, width: int | None) -> None:
        for name, value in (("children", children), ("width", width)):
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        self._children = children
        self._width = width

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(tree.children, tree.width)

    def pool(self, scorer: Scorer, limits: Limits) -> DraftTree:
        """All scored nodes, as a tree."""
        if limits.nodes < 0:
            raise ValueError(f"budget {limits.nodes} is negative")
        width = limits.nodes if self._width is None else self._width
        # No more children of one parent can be kept or expanded.
        most = max(width, limits.nodes)
        children = most if self._children is None else min(self._children, most)
        depths = min(limits.depth, scorer.num_drafts) if width else 0

        state = scorer.start()
        ledger = Ledger(scorer.root)
        above = torch.zeros_like(scorer.root).unsqueeze(-1)  # the frontier's indices in its level
        scores = None
        for depth in range(1, depths + 1):
            tokens, steps, ranks = scorer.top(state, depth, children)  # [*R, N, count]
            paths = (steps if scores is None else scores.unsqueeze(-1) + steps).flatten(-2)
            token, count = tokens.flatten(-2), tokens.shape[-1]
            parents = above.unsqueeze(-1).expand(*above.shape, count).flatten(-2)
            ledger.add_level(parents, token, paths, ranks.flatten(-2))
            if depth < depths:
                scores, above = stable_topk(paths, min(width, paths.shape[-1]))
                state = scorer.advance(state, depth, above // count, token.gather(-1, above))
        return ledger.tree()

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """The `limits.nodes` best nodes of the pool, of at most `limits.depth` levels."""
        pool = self.pool(scorer, limits if limits.nodes else Limits(0, 0))
        return subtree(pool, self._order(best_nodes(pool, limits.nodes)))

    def _order(self, best: Tensor) -> Tensor:
        """The order of the chosen nodes in the tree; `best` is best first."""
        return best.sort(-1).values


class FrontierBuilder(PoolBuilder):
    """DominoTree's frontier: nodes are numbered best first, in the heap's order."""

    def _order(self, best: Tensor) -> Tensor:
        return best
