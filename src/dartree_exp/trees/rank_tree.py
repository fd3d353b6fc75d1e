"""Static trees: the same shape in every round (Medusa, arXiv 2401.10774, section 2.3.3).

node (r_1, ..., r_d)  =  the r_d-th best child, from 0, of node (r_1, ..., r_d-1)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import torch

from dartree_exp.interfaces import DraftTree
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.rank_paths import RankPath, read_paths
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer


class RankTreeBuilder:
    """The first paths of a shape that fit the depth and the budget, best first. Nodes are numbered
    level by level; a path whose rank a parent does not have is left out with all below it.
    """

    def __init__(self, paths: Sequence[RankPath]) -> None:
        self._paths = tuple(paths)

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(read_paths(tree.paths))

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """At most `limits.nodes` nodes of at most `limits.depth` levels."""
        depths = levels(scorer, limits)
        left = [path for path in self._paths if len(path) <= depths][: limits.nodes]
        inner = {path[:-1] for path in left}  # those with children
        state, ledger = scorer.start(), Ledger(scorer.root)
        scores = torch.zeros(1, device=scorer.root.device)  # of the level above
        above: dict[RankPath, int] = {(): 0}  # its nodes: where they are in it
        rows: dict[RankPath, int] = {(): 0}  # its nodes with children: where they are in `state`
        for depth in range(1, depths + 1):
            level = [path for path in left if len(path) == depth and path[:-1] in rows]
            if not level:
                break
            found = scorer.top(state, depth, 1 + max(path[-1] for path in level))
            count = found[0].shape[-1]
            level = [path for path in level if path[-1] < count]
            index = partial(torch.tensor, device=scorer.root.device)
            place = index([rows[path[:-1]] * count + path[-1] for path in level])
            token, step, rank = (each.flatten(-2)[..., place] for each in found)  # [*R, M]
            parent = index([above[path[:-1]] for path in level])
            scores = scores[..., parent] + step
            ledger.add_level(parent.expand_as(token), token, scores, rank)
            above = {path: i for i, path in enumerate(level)}
            grown = [path for path in level if path in inner]
            if depth < depths and grown:
                chosen = token[..., index([above[path] for path in grown])]
                parent = index([rows[path[:-1]] for path in grown]).expand_as(chosen)
                state = scorer.advance(state, depth, parent, chosen)
            rows = {path: i for i, path in enumerate(grown)}
        return ledger.tree()
