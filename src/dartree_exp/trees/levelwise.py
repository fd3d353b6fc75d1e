"""Level-wise builders: all parents of a depth are scored at once (DARTree, arXiv 2608.13524).

Per depth a constant number of tensor operations, whatever width, candidates and budget; no loop
over nodes. On a GPU nothing is read on the host; on a CPU the selection looks for ties and sorts
only where there are any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.children import Children
from dartree_exp.trees.prune import best_nodes, check_beta, subtree
from dartree_exp.trees.scorer import Scorer, levels
from dartree_exp.trees.spec import TreeSettings
from dartree_exp.trees.tree import DraftTree, Ledger


def grow(scorer: Scorer, root: int, widths: list[int], children: Children, count: int) -> DraftTree:
    """A tree with the `widths[d - 1]` best nodes at depth d, all of which are expanded.

    count: children per parent. Order within a depth: score descending, equal scores by place of the
    parent, then by rank of the candidate. A width is cut to the children there are.
    """
    state = scorer.start(root)
    ledger = Ledger(root, state.device)
    scores = None
    for depth, width in enumerate(widths, start=1):
        log_probs, ranks = children.take(scorer.score(state, depth), count)
        paths = log_probs if scores is None else scores.unsqueeze(1) + log_probs
        scores, index = stable_topk(paths.flatten(), min(width, paths.numel()))
        parent, rank = index // count, index % count
        if ranks is not None:
            rank = ranks[parent, rank]
        token = scorer.candidates(depth).index_select(0, rank)
        ledger.add_level(parent, token, scores, rank)
        if depth < len(widths):
            state = scorer.advance(state, depth, parent, token)
    return ledger.tree()


class LevelwiseBuilder(ABC):
    """Common part: the number of children and the schedule of widths, then `grow`."""

    def __init__(self, children: Children) -> None:
        self._children = children

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree))

    @abstractmethod
    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        """Nodes to keep at each depth; may stop short of `depths`."""

    def supertree(self, scorer: Scorer, root: int, depth_limit: int, budget: int) -> DraftTree:
        """The tree before pruning."""
        depths = levels(scorer, depth_limit, budget)
        if depths < 1:
            return Ledger(root, scorer.start(root).device).tree()
        count = self._children.count(scorer.candidates(1).shape[0], budget)
        return grow(scorer, root, self.widths(depths, budget, count), self._children, count)

    def build(self, scorer: Scorer, root: int, depth_limit: int, budget: int) -> DraftTree:
        """The verification tree of at most `budget` nodes and `depth_limit` levels."""
        return self.supertree(scorer, root, depth_limit, budget)


class FixedBuilder(LevelwiseBuilder):
    """DARTree fixed: the budget is spread evenly over the depths; shallow depths take what does not
    divide.
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

    beta plays no role while growing. With width >= budget, all candidates as children and beta = 0
    the tree has the same nodes as the best-first heap: a node among the global best B has all its
    ancestors among the best B of their depths, so none of them is lost on the way.
    """

    def __init__(self, children: Children, width: int | None, beta: float) -> None:
        check_beta(beta)
        if width is not None and width < 1:
            raise ValueError(f"width = {width}: at least one node per depth")
        super().__init__(children)
        self._width = width
        self._beta = beta

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(Children.from_settings(tree), tree.width, tree.beta)

    def widths(self, depths: int, budget: int, count: int) -> list[int]:
        # The release caps the width by the children per parent (its `expansion_count`), as part of
        # the budget rule.
        width = budget if self._width is None else self._width
        return [min(width, count) if self._children.narrow_by_budget else width] * depths

    def build(self, scorer: Scorer, root: int, depth_limit: int, budget: int) -> DraftTree:
        supertree = self.supertree(scorer, root, depth_limit, budget)
        if supertree.num_nodes <= budget:
            return supertree
        return subtree(supertree, best_nodes(supertree, budget, self._beta).sort().values)
