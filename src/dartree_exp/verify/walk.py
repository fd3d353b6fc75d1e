"""Walking down a draft tree by the target's draws."""

from __future__ import annotations

from collections.abc import Callable


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
