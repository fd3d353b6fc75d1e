"""Makes the configured builder."""

from __future__ import annotations

from typing import cast

import torch

from dartree_exp.interfaces import Builder, DraftTree, Draws, Limits, Scorer
from dartree_exp.trees.prune import leading
from dartree_exp.trees.spec import SCORERS, TREES, TreeSettings


def largest_tree(tree: TreeSettings, depths: int, budget: int) -> int:
    """The most nodes, without the root, of a tree with `depths` levels; at most `budget`."""
    spec = TREES[tree.name]
    scorer = SCORERS.get(str(tree.scoring))
    whole = scorer is not None and scorer.whole
    choices = (
        budget
        if whole or tree.candidates_follow_budget or tree.candidates == "all"
        else int(tree.candidates)
    )
    limit = tree.children if "children" in spec.reads else None
    branch = choices if limit is None else min(choices, limit)
    most = getattr(tree, spec.level) if isinstance(spec.level, str) else spec.level
    width = budget if most is None else most
    nodes, level = 0, 1
    for _ in range(depths):
        level = min(level * branch, width)
        nodes += level
        if nodes >= budget:
            return budget
    return nodes


def make_builder(tree: TreeSettings) -> Builder:
    """The configured builder. Raises ConfigError for an unknown name, ValueError for an invalid
    value.
    """
    spec = TREES[tree.name]
    made = cast(Builder, spec.load().from_settings(tree))
    return Possible(made) if spec.proposals == ("best",) else made


class Possible:
    """A builder whose trees have no nodes that the scorer excludes, if it excludes any."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        tree = self.builder.build(scorer, limits, draws)
        if not getattr(scorer, "excludes", False):
            return tree
        return leading(tree, tree.scores[..., 1:] > -torch.inf)
