"""Prefix-closed choice of the B best nodes of a supertree."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.tree import DraftTree


def check_beta(beta: float) -> None:
    """Raise ValueError for a depth bonus under which a node may outrank its own parent."""
    if beta > 0:
        raise ValueError(
            f"beta = {beta}: a positive depth bonus can keep a node without its parent; use beta "
            "<= 0"
        )


def best_nodes(tree: DraftTree, budget: int, beta: float = 0.0) -> Tensor:
    """Node indices, int64 [B], of the `budget` best non-root nodes by score + beta * depth, best
    first.

    Equal scores go to the smaller index, which is never a descendant. So for beta <= 0 the choice
    is prefix closed, and parents come first, without looking at the parents: no node scores above
    its parent, since step scores are <= 0 and rounding is monotone (arXiv 2608.13524, Lemma 1). A
    positive beta breaks this; callers refuse it.
    """
    keys = torch.add(tree.scores, tree.depths, alpha=beta)
    _, places = stable_topk(keys[1:], min(budget, tree.num_nodes))
    return places + 1


def subtree(tree: DraftTree, kept: Tensor) -> DraftTree:
    """The tree of the root and the nodes `kept` (int64 [B], prefix closed, parents first), numbered
    in that order.
    """
    nodes = torch.cat([tree.depths[:1], kept])  # the root's depth is its index: 0
    place = torch.full_like(tree.parents, -1).scatter_(
        0, nodes, torch.arange(nodes.shape[0], device=nodes.device)
    )
    parents = place.index_select(0, tree.parents.index_select(0, kept))
    return replace(
        tree,
        tokens=tree.tokens.index_select(0, nodes),
        parents=torch.cat([tree.parents[:1], parents]),
        depths=tree.depths.index_select(0, nodes),
        scores=tree.scores.index_select(0, nodes),
        ranks=None if tree.ranks is None else tree.ranks.index_select(0, nodes),
        supertree=tree,
        kept=nodes,
    )
