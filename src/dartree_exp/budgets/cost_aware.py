"""The number of nodes that advances the most tokens per second on this machine, chosen anew in each
round (our own; cf. CaDDTree, arXiv 2606.01813, and TreeSpark, arXiv 2609.22098).

Of a tree's nodes the best B by chance are prefix closed and nested in B, so the tokens expected of
every B are one cumulative sum. The best B is the maximum over the whole cost curve, not the first
drop: a curve with steps has several local maxima.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from dartree_exp.budgets.chances import EdgeCalibration, best_first, path_chances
from dartree_exp.budgets.cost import RoundCosts
from dartree_exp.budgets.rest import Rest
from dartree_exp.interfaces import DraftTree, Limits, RoundResult, RoundView, Scorer
from dartree_exp.trees.prune import leading

RECENT = 4  # rounds whose sizes limit the next tree
FEWEST_NODES, FEWEST_LEVELS = 16, 6  # smallest limits of a tree


@dataclass
class Past:
    """What one request's earlier rounds say about the next."""

    rest: Rest = field(default_factory=Rest)
    nodes: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    levels: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    expected: float = 1.0  # tokens of this round

    def limits(self, most: Limits) -> Limits:
        """Twice what recent rounds verified, so that no large tree is built for a small one."""
        if self.rest.resting:
            return Limits(most.depth, 0)
        nodes = max(FEWEST_NODES, 2 * max(self.nodes, default=0))
        levels = max(FEWEST_LEVELS, 2 * max(self.levels, default=most.depth))
        return Limits(min(levels, most.depth), min(nodes, most.nodes))


class CostAwareBudget:
    """In each round the B with the largest (1 + sum of the chances of the best B nodes) / (draft +
    rest of a round + verification of B + 1 rows).

    A request whose drafts have lost time rests (`rest.Rest`). Everything that a decision reads is
    the tree, the cost curve and the request's earlier rounds, so a run with the same curve repeats
    to the node. Without a curve (`view.cost` is NaN) every round verifies the whole tree.
    """

    def __init__(self, edges: EdgeCalibration) -> None:
        self.edges = edges
        self._past: list[Past] = []
        self._costs = RoundCosts(lambda rows: math.nan, 0.0)
        self._step = math.nan  # seconds of a plain step; NaN: nothing was measured
        self._pairs = torch.empty(2, 0, 1, dtype=torch.float64)

    @classmethod
    def from_settings(cls, settings: Any, edges: EdgeCalibration) -> Self:
        return cls(edges)

    @property
    def _measured(self) -> bool:
        return not math.isnan(self._step)

    def drafts(self, view: RoundView) -> bool:
        if view.index == 0:
            self._open(view)
        return not all(past.rest.resting for past in self._past)

    def _open(self, view: RoundView) -> None:
        """Forget the requests of the last loop."""
        self._past = [Past() for _ in view.start]
        self._step = view.cost(1)
        self._costs = RoundCosts(view.cost, view.overhead.total)
        temperatures = view.temperatures or (0.0,) * len(view.start)
        pairs = [self.edges.at(temperature) for temperature in temperatures]
        self._pairs = torch.tensor(pairs, dtype=torch.float64).T.unsqueeze(-1)

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        if not self._measured:
            return view.limits
        each = [past.limits(view.limits) for past in self._past]
        return Limits(max(one.depth for one in each), max(one.nodes for one in each))

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        if not self._measured or tree.num_nodes == 0:
            return tree
        device = tree.scores.device
        a, b = self._pairs.to(device)
        chances, places = best_first(path_chances(tree, a, b))
        tokens = 1 + torch.nn.functional.pad(chances.cumsum(-1), (1, 0))
        speeds = tokens / self._costs.upto(tree.num_nodes, device)  # [R, 1 + N]
        # The first of equal ones, so padding, which adds no chance, is never kept.
        best = speeds.argmax(-1)
        if any(resting := [past.rest.resting for past in self._past]):
            best = best.masked_fill(torch.tensor(resting, device=device), 0)
        kept = places < best.unsqueeze(-1)
        levels = (tree.depths[..., 1:] * kept).amax(-1)
        expected = tokens.gather(-1, best.unsqueeze(-1)).squeeze(-1)
        found = torch.stack([best.double(), levels.double(), expected]).tolist()  # one host read
        sizes = [int(size) for size in found[0]]
        for past, nodes, depth, hoped in zip(self._past, sizes, *found[1:], strict=True):
            past.expected = hoped
            if not past.rest.resting:
                past.nodes.append(nodes)
                past.levels.append(int(depth))
        return leading(tree, kept, sizes)

    def observe(self, result: RoundResult) -> None:
        if not self._measured:
            return
        for past, path in zip(self._past, result.accepted.paths, strict=True):
            if past.rest.resting:
                past.rest.rested()
            else:
                nodes = past.nodes[-1] if result.tree.num_nodes else 0
                past.rest.drafted(past.expected, len(path), self._costs.of(nodes) / self._step)
