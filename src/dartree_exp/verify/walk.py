"""Exact-match verification: follow the child whose token is the target's own draw.

Lossless for any tree: each emitted token is the target's draw in its own context, and siblings
differ, so at most one child matches (DDTree, arXiv 2604.12989, verification; DARTree, arXiv
2608.13524, preliminaries).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dartree_exp.trees.tree import DraftTree
from dartree_exp.verify.sampling import Sampler


class NonFiniteLogitsError(ValueError):
    """NaN or infinite logits; the message names whose logits, which round and which sample."""


def check_finite(logits: Tensor, whose: str, round_index: int, sample_id: str) -> None:
    """Raise `NonFiniteLogitsError` if any logit is NaN or infinite (one reduction, no mask is
    materialised).
    """
    if not torch.isfinite(logits.sum(dtype=torch.float64)):
        bad = (~torch.isfinite(logits)).sum().item()
        raise NonFiniteLogitsError(
            f"{whose} logits: {bad} of {logits.numel()} values are NaN or infinite (round "
            f"{round_index}, sample {sample_id!r})"
        )


def walk(
    tokens: list[int], parents: list[int], chosen: Callable[[int], int]
) -> tuple[list[int], int]:
    """Walk from the root while the target's draw is one of the current node's children.

    Args:
        tokens, parents: [1+N] of the tree, node 0 the root.
        chosen: node -> the target's token after that node; called only for visited nodes.
    Returns:
        accepted node indices (starting with 0), and the bonus token (the first draw that is no
        child).
    """
    children: dict[tuple[int, int], int] = {
        (p, t): i for i, (p, t) in enumerate(zip(parents, tokens, strict=True)) if i
    }
    path = [0]
    while True:
        token = chosen(path[-1])
        child = children.get((path[-1], token))
        if child is None:
            return path, token
        path.append(child)


def verify_tree(
    tree: DraftTree, logits: Tensor, sampler: Sampler, start: int, round_index: int = 0
) -> tuple[list[int], int]:
    """Accepted node path (root first) and bonus token of one round.

    On a CPU and at T > 0 only the rows that the walk visits are read; a greedy walk elsewhere takes
    the argmax of all rows in one transfer. Only visited rows are checked for NaN and infinity. A
    row that it does not visit decides nothing by itself; a NaN in its keys or values reaches every
    row that shares a layer with it, the visited ones included, since a hidden key is weighted by
    zero and 0 * NaN is NaN.

    Args:
        logits: [1+N, V] of the target, row i after node i. start: absolute position of the root.
    Raises:
        NonFiniteLogitsError: a visited row has NaN or infinite logits.
    """
    tokens, parents, depths = torch.stack((tree.tokens, tree.parents, tree.depths)).tolist()
    if sampler.greedy and logits.device.type != "cpu":
        draws = logits.argmax(
            -1
        ).tolist()  # one transfer, where reading row by row would synchronise for each
        path, bonus = walk(tokens, parents, draws.__getitem__)
    else:
        path, bonus = walk(
            tokens, parents, lambda node: sampler.choose(logits[node], start + depths[node] + 1)
        )
    check_finite(logits[path], "target", round_index, sampler.sample_id)
    return path, bonus
