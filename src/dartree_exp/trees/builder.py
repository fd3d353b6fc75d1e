"""Makes the configured builder."""

from __future__ import annotations

from typing import cast

from dartree_exp.interfaces import Builder
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
    return cast(Builder, TREES[tree.name].load().from_settings(tree))
