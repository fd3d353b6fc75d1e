"""CaDDTree's rule (arXiv 2606.01813): nodes are added, best first, until one does not raise the
expected speed.
"""

from __future__ import annotations

import math

import torch

from dartree_exp.budgets.chances import best_first
from dartree_exp.budgets.convex import convex_fit
from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.interfaces import DraftTree, RoundView, Scorer
from dartree_exp.trees.prune import leading


class CaddtreeBudget(FixedBudget):
    """Stops at the first n for which theta(n) = (1 + Phi_n) / (C_d + C_v(n)) does not exceed
    theta(n - 1).

    As published: Phi_n is the sum of the drafter's own path probabilities of the best n nodes,
    without calibration; C_d is the draft alone, without build, mask and commit; C_v(n) is the least
    squares fit of the measured times that rises and is convex, at n rows although the round
    verifies n + 1. For a convex C_v the first drop is the maximum.

    Ours: one curve, measured at one context length (the published one is linear between several);
    the tree is first built with `tree.budget` nodes and then cut, and any tree can be cut (the
    published one is DDTree's heap). Without a measured curve every round verifies the whole tree.
    """

    def __init__(self) -> None:
        self._fitted = CostCurve({1: math.nan})

    def drafts(self, view: RoundView) -> bool:
        if view.index == 0:
            self._fitted = fitted(view)
        return True

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        if math.isnan(self._fitted(1)) or tree.num_nodes == 0:
            return tree
        probabilities, places = best_first(tree.scores[..., 1:].double().exp())
        tokens = 1 + torch.nn.functional.pad(probabilities.cumsum(-1), (1, 0))
        seconds = [view.overhead.draft + self._fitted(n) for n in range(tree.num_nodes + 1)]
        theta = tokens / torch.tensor(seconds, dtype=torch.float64, device=tokens.device)
        rises = theta[..., 1:] > theta[..., :-1]
        counts = rises.to(torch.int64).cumprod(-1).sum(-1)
        return leading(tree, places < counts.unsqueeze(-1), counts.tolist())


def fitted(view: RoundView) -> CostCurve:
    """The convex fit of the view's curve, linear below its first point; NaN without a curve."""
    if not isinstance(view.cost, CostCurve):
        rows = range(1, view.limits.nodes + 2)
        points = [(n, view.cost(n)) for n in rows]
    else:
        points = view.cost.points
    if any(math.isnan(seconds) for _, seconds in points):
        return CostCurve({1: math.nan})
    return CostCurve(dict(convex_fit(points)))
