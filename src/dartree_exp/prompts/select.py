"""Selects and orders the rows of a data set."""

from __future__ import annotations

from collections.abc import Sequence


def shuffled(size: int, seed: int) -> list[int]:
    """The permutation of `datasets.Dataset.shuffle(seed)`: numpy's PCG64 generator."""
    import numpy as np  # slow to import

    return np.random.default_rng(seed).permutation(size).tolist()


def subset(size: int, count: int | None, limit: int | None, seed: int) -> list[int]:
    """Row numbers before stratification.

    The papers' rule: a set larger than `count` is shuffled and cut, a smaller one keeps its order.
    It is also shuffled if `limit` leaves rows out: the first rows are not a random sample.
    """
    wanted = size if count is None else min(count, size)
    if wanted < size or (limit is not None and limit < wanted):
        return shuffled(size, seed)[:wanted]
    return list(range(size))


def stratify(rows: Sequence[int], categories: Sequence[str], limit: int) -> list[int]:
    """`limit` rows, taken from the categories in turn. categories[i]: of rows[i].

    Categories are in alphabetical order, rows of a category in the given order; an exhausted
    category is skipped.
    """
    queues: dict[str, list[int]] = {name: [] for name in sorted(set(categories))}
    for row, name in zip(rows, categories, strict=True):
        queues[name].append(row)
    chosen: list[int] = []
    depth = 0
    while len(chosen) < min(limit, len(rows)):
        turn = [queue[depth] for queue in queues.values() if depth < len(queue)]
        chosen += turn[: limit - len(chosen)]
        depth += 1
    return chosen
