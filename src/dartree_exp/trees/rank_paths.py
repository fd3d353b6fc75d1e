"""The shapes of static trees: a node is the ranks of the children along its path. Does not import
torch.

A shape is a JSON file with `paths`, best path first, so that a smaller budget takes the first ones;
`how` says where it comes from. `paths/` has the shapes that are shipped, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from importlib import resources
from pathlib import Path

from dartree_exp.errors import ConfigError
from dartree_exp.records.reading import UnreadableError, read_object, user_path

RankPath = tuple[int, ...]
_SHIPPED = resources.files("dartree_exp.trees").joinpath("paths")


def shipped() -> list[str]:
    """The names of the shapes in the package."""
    return sorted(
        file.name[: -len(".json")] for file in _SHIPPED.iterdir() if file.name.endswith(".json")
    )


def paths_file(name: str) -> Path:
    """The file of `tree.paths`. Raises ConfigError if there is none."""
    if name in shipped():
        return Path(str(_SHIPPED.joinpath(f"{name}.json")))
    file = user_path(name)
    if not name.endswith(".json") or not file.is_file():
        raise ConfigError(
            f"tree.paths={name}: must be one of {', '.join(shipped())}, or an existing .json file"
        )
    return file


def read_paths(name: str) -> tuple[RankPath, ...]:
    """The rank paths of `tree.paths`. Raises ConfigError for a missing file and for paths that are
    no tree.
    """
    file = paths_file(name)
    try:
        found = read_object(file).get("paths")
    except UnreadableError as error:
        raise ConfigError(f"tree.paths={name}: {error}") from error
    if not isinstance(found, list) or not all(map(_is_path, found)):
        raise ConfigError(
            f"tree.paths={name}: `paths` must be a list of lists of ranks, integers from 0"
        )
    paths = tuple(tuple(path) for path in found)
    seen: set[RankPath] = {()}
    for path in paths:
        if path in seen or path[:-1] not in seen:
            what = "is there twice" if path in seen else "comes before the path above it"
            raise ConfigError(f"tree.paths={name}: path {list(path)} {what}")
        seen.add(path)
    return paths


def _is_path(path: object) -> bool:
    return (
        isinstance(path, list)
        and len(path) > 0
        and all(isinstance(rank, int) and not isinstance(rank, bool) for rank in path)
        and min(path) >= 0
    )


def greedy_paths(accuracies: Sequence[Sequence[float]], count: int) -> list[RankPath]:
    """The tree of `count` nodes with the most accepted drafts, if head and rank are independent
    (Medusa, arXiv 2401.10774, section 2.3.3): the next node is the one with the largest product of
    accuracies below a node that is in the tree.

    accuracies: [D][K], how often the token of a rank is the right one at a depth. Equal products go
    to the path that is smaller as a list of ranks. Fewer nodes if there are no more. Raises
    ValueError for accuracies that are no probabilities.
    """
    for row in accuracies:
        if not all(0 <= p <= 1 for p in row):
            raise ValueError(f"accuracies {list(row)}: must be probabilities")
    chosen: list[RankPath] = []
    still: list[tuple[float, RankPath]] = []

    def push(above: float, path: RankPath) -> None:
        if len(path) < len(accuracies):
            for rank, accuracy in enumerate(accuracies[len(path)]):
                heappush(still, (-above * accuracy, (*path, rank)))

    push(1.0, ())
    while still and len(chosen) < count:
        negative, path = heappop(still)
        chosen.append(path)
        push(-negative, path)
    return chosen


def expected_length(accuracies: Sequence[Sequence[float]], paths: Sequence[RankPath]) -> float:
    """Tokens advanced per round that these accuracies promise, bonus token included."""
    total = 1.0
    for path in paths:
        chance = 1.0
        for row, rank in zip(accuracies, path, strict=False):
            chance *= row[rank]
        total += chance
    return total
