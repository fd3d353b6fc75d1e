"""The draft trees of recorded rounds, for the tree viewer (`trees.jsonl`, one line per round).

Only some prompts' trees are recorded (`record.trees`): a tree of 180 nodes takes about 4 kB. They
are written after the answer is complete and are not timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dartree_exp.records.schema import Line, RecordError

DIGITS = 4  # of a recorded log-probability


@dataclass
class TreeRecord(Line):
    """One round's scored tree, and the nodes that were verified and accepted.

    `tokens`, `parents` (-1 for the root), `scores` (natural log-probability of the path under the
    drafter) and `ranks` (index among the depth's candidates, None if the builder has none) have one
    entry per node of the supertree, root first. `verified`: nodes sent to the target, None for all.
    `accepted`: the accepted path, root first. `context`: text before the root. `texts`: text of
    each token id, including `bonus`.
    """

    id: str
    turn: int
    round: int
    tokens: list[int]
    parents: list[int]
    scores: list[float]
    ranks: list[int] | None
    verified: list[int] | None
    accepted: list[int]
    bonus: int
    context: str
    texts: dict[str, str]
    repeat: int = 0

    @property
    def sample_key(self) -> tuple[str, int, int]:
        """Key of the sample this round belongs to."""
        return self.id, self.turn, self.repeat

    def validate(self) -> None:
        """Raise RecordError if the lists differ in length or name a node that does not exist."""
        size = len(self.tokens)
        sizes = {
            len(self.parents),
            len(self.scores),
            size if self.ranks is None else len(self.ranks),
        }
        parents = self.parents[:1] == [-1] and all(
            0 <= p < node for node, p in enumerate(self.parents[1:], start=1)
        )
        nodes = [*self.accepted, *(self.verified or ())]
        if not parents or sizes != {size} or not all(0 <= node < size for node in nodes):
            raise RecordError(
                f"tree of sample {self.id!r} turn {self.turn} round {self.round}: its lists do not "
                "form a tree"
            )

    def text(self, token: int) -> str:
        """Text of a token id, or its number if it has none (special tokens)."""
        return self.texts.get(str(token)) or f"<{token}>"

    def children(self) -> list[list[int]]:
        """The children of each node, best path score first, equal scores by index."""
        below: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], start=1):
            below[parent].append(node)
        return [sorted(nodes, key=lambda node: (-self.scores[node], node)) for nodes in below]


def branches(
    parents: Sequence[int], scores: Sequence[float], path: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The rank of each accepted node among its siblings, and the children of each node on the path.

    Args:
        parents, scores: [1+N] of the verified tree. path: accepted nodes, root first.
    Returns:
        ranks of path[1:] (0: the best path score), and the number of children of each node in path.
    """
    below: dict[int, list[int]] = {node: [] for node in path}
    for node, parent in enumerate(parents):
        if parent in below:
            below[parent].append(node)
    places = []
    for parent, child in pairwise(path):
        places.append(sorted(below[parent], key=lambda node: (-scores[node], node)).index(child))
    return places, [len(below[node]) for node in path]
