"""The builder protocol and the choice of a builder by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dartree_exp.config.schema import TREES
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.pool import FrontierBuilder, PoolBuilder
from dartree_exp.trees.scorer import Scorer
from dartree_exp.trees.tree import DraftTree

if TYPE_CHECKING:
    from dartree_exp.config import TreeConfig


class Builder(Protocol):
    """Turns a scorer into a tree. Builders hold no state between rounds."""

    def build(self, scorer: Scorer, root: int, depth_limit: int, budget: int) -> DraftTree:
        """A prefix-closed tree of at most `budget` drafted nodes and min(depth_limit, drafts)
        levels.

        Fewer nodes where the scorer has no more; the bare root for budget 0. Raises ValueError for
        a negative budget.
        """


def largest_tree(tree: TreeConfig, depths: int) -> int:
    """Most nodes, root left out, that a round can send to verification with so many depths; at most
    `tree.budget`.
    """
    choices = (
        tree.budget
        if tree.candidates_follow_budget or tree.candidates == "all"
        else int(tree.candidates)
    )
    branch = 1 if tree.name == "chain" else min(choices, tree.children or choices)
    width = tree.width if tree.name == "pruned" and tree.width is not None else tree.budget
    nodes, level = 0, 1
    for _ in range(depths):
        level = min(level * branch, width)
        nodes += level
        if nodes >= tree.budget:
            return tree.budget
    return nodes


def make_builder(tree: TreeConfig) -> Builder:
    """The builder a configuration names; raises ValueError for an unknown name or a value that
    would break a tree.
    """
    children = Children(tree.children, tree.child_order, tree.narrow_by_budget)
    if tree.name == "chain":
        return ChainBuilder()
    if tree.name == "heap":
        return HeapBuilder(children, beta=tree.beta)
    if tree.name == "fixed":
        return FixedBuilder(children)
    if tree.name == "pruned":
        return PrunedBuilder(children, tree.width, tree.beta)
    if tree.name == "pool":
        return PoolBuilder(tree.children, tree.width)
    if tree.name == "frontier":
        return FrontierBuilder(tree.children, tree.width)
    raise ValueError(f"unknown tree {tree.name!r}: {', '.join(TREES)}")
