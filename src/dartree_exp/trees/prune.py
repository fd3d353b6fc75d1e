"""Pruning: the B best nodes of a supertree, prefix closed."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappush, heappushpop

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels.candidate_select import stable_topk


def check_beta(beta: float) -> None:
    """Raise ValueError for a depth bonus that can rank a node above its own parent."""
    if beta > 0:
        raise ValueError(
            f"beta = {beta}: a positive depth bonus can keep a node without its parent; use beta "
            "<= 0"
        )


def best_nodes(tree: DraftTree, budget: int, beta: float = 0.0) -> Int64[Tensor, "*R B"]:
    """Node indices of the `budget` best non-root nodes by score + beta * depth, best first.

    Equal scores go to the smaller index, which is never a descendant, and no node scores above its
    parent, since step scores are <= 0 and rounding is monotone. So for beta <= 0 the choice is
    prefix closed and parents come first (arXiv 2608.13524, Lemma 1). Callers refuse beta > 0.
    """
    keys = torch.add(tree.scores, tree.depths, alpha=beta)
    _, places = stable_topk(keys[..., 1:], min(budget, tree.num_nodes))
    return places + 1


class Bound:
    """Which nodes of a growing tree can still be among its `budget` best by score + beta * depth.

    No key rises along a path for beta <= 0, so a node whose key is below the budget-th best so far
    is not kept, and nothing below it is: the tree after pruning is the same without its children.
    Reads the scores on the host.
    """

    # Far more than the rounding of a key: a node too many is expanded, never one too few.
    _MARGIN = 1e-5

    def __init__(self, budget: int, beta: float) -> None:
        self._budget, self._beta = budget, beta
        self._best: list[list[float]] = []  # per request, a heap of its best keys

    def open(self, scores: Float[Tensor, "*R M"], depth: int) -> int:
        """Adds the next level, best first; the number of its leading nodes that may have kept
        descendants, the largest over requests.
        """
        rows = scores.reshape(-1, scores.shape[-1]).tolist()
        self._best = self._best or [[] for _ in rows]
        return max(self._open(*pair, depth) for pair in zip(rows, self._best, strict=True))

    def _open(self, scores: list[float], best: list[float], depth: int) -> int:
        keys = [score + self._beta * depth for score in scores]
        for key in keys:
            if len(best) < self._budget:
                heappush(best, key)
            else:
                heappushpop(best, key)
        if len(best) < self._budget:
            return len(keys)
        lowest = best[0] - self._MARGIN * (1 + abs(best[0]))
        return sum(not key < lowest for key in keys)


def subtree(tree: DraftTree, kept: Int64[Tensor, "*R B"]) -> DraftTree:
    """The tree of the root and the nodes `kept` (prefix closed, parents first), numbered in that
    order. `kept` may contain padding.
    """
    nodes = torch.cat([tree.depths[..., :1], kept], -1)  # the root's depth is its index: 0
    numbers = torch.arange(nodes.shape[-1], device=nodes.device).expand_as(nodes)
    place = torch.full_like(tree.parents, -1).scatter_(-1, nodes, numbers)
    above = tree.parents.gather(-1, kept)
    if tree.size is None:
        parents, size = place.gather(-1, above), None
    else:
        parents = place.gather(-1, above.clamp(min=0)).where(above >= 0, -1)
        size = 1 + (above >= 0).sum(-1)

    def of(field: Tensor | None) -> Tensor | None:
        return None if field is None else field.gather(-1, nodes)

    return replace(
        tree,
        tokens=tree.tokens.gather(-1, nodes),
        parents=torch.cat([tree.parents[..., :1], parents], -1),
        depths=tree.depths.gather(-1, nodes),
        scores=tree.scores.gather(-1, nodes),
        ranks=of(tree.ranks),
        laws=None,  # nodes chosen after they were drawn have another law
        supertree=tree,
        kept=nodes,
        size=size,
    )


def leading(
    tree: DraftTree, kept: Bool[Tensor, "*R N"], counts: list[int] | None = None
) -> DraftTree:
    """The tree of the root and the nodes where `kept` (prefix closed) is true, in their order; the
    tree itself if all are kept.

    counts: the number of kept nodes of each request, padding not counted; None: read on the host.
    """
    if tree.size is not None:
        kept = kept & (tree.parents[..., 1:] >= 0)  # padding is no node
    sizes = kept.sum(-1).flatten().tolist() if counts is None else counts
    fewest, most = min(sizes), max(sizes)
    if fewest == tree.num_nodes:
        return tree
    order = (~kept).to(torch.int8).sort(dim=-1, stable=True).indices[..., :most] + 1
    cut = subtree(tree, order)
    if fewest == most:
        return replace(cut, size=None)
    size = torch.tensor(sizes, device=kept.device) + 1
    padding = torch.arange(1 + most, device=size.device) >= size.unsqueeze(-1)
    return replace(
        cut,
        tokens=cut.tokens.masked_fill(padding, 0),
        parents=cut.parents.masked_fill(padding, -1),
        depths=cut.depths.masked_fill(padding, 0),
        scores=cut.scores.masked_fill(padding, -torch.inf),
        size=size,
    )
