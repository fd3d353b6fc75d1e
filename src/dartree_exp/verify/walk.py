"""Walking down a draft tree by the target's draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dartree_exp.interfaces import Accepted, Draws
from dartree_exp.verify.finite import check_finite

Fields = Sequence[list[int]]  # tokens, parents and depths of one request's nodes
Found = tuple[list[int], int]  # path and bonus token


def walk(
    tokens: list[int], parents: list[int], chosen: Callable[[int], int]
) -> tuple[list[int], int]:
    """Walk from the root while the target's draw is one of the current node's children.

    Args:
        tokens, parents: [1+N] of the tree, node 0 the root.
        chosen: node -> the target's token after that node; called only for visited nodes.
    Returns:
        accepted node indices (starting with 0), and the bonus token (the first draw that is not a
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


def follow(request: int, fields: Fields, logits: Float[Tensor, "n V"], draws: Draws) -> Found:
    """The walk by the target's draws, which are made only for rows that it visits.

    Raises NonFiniteLogitsError if a visited row is not finite.
    """
    tokens, parents, depths = fields

    def chosen(node: int) -> int:
        return draws.target(request, logits[node], depths[node] + 1)

    path, bonus = walk(tokens, parents, chosen)
    check_finite(logits[path], "target", draws.where(request))
    return path, bonus


def accepted(
    tokens: Sequence[list[int]],
    found: Sequence[Found],
    healthy: Bool[Tensor, " R"] | Sequence[bool] | None,
    device: torch.device,
) -> Accepted:
    """What was found for all requests. tokens: of their nodes. healthy: None if all are."""
    if healthy is None:
        healthy = [True] * len(found)
    elif isinstance(healthy, Tensor):
        healthy = healthy.tolist()
    return Accepted(
        paths=tuple(path for path, _ in found),
        tokens=tuple(
            [own[node] for node in path[1:]] for own, (path, _) in zip(tokens, found, strict=True)
        ),
        bonus=tuple(bonus for _, bonus in found),
        healthy=tuple(healthy),
        device=device,
    )
