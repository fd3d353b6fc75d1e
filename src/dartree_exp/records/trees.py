"""The draft trees of recorded rounds: what the tree viewer draws (`trees.jsonl`, one line a round).

Only some prompts' trees are recorded (`record.trees`): a tree of 180 nodes takes about 4 kB. They
are written after the answer is complete, outside everything that is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dartree_exp.records.schema import Line, RecordError

DIGITS = 4  # of a recorded log-probability


@dataclass
class TreeRecord(Line):
    """What one round's builder scored, and what became of it.

    Lists run over the S nodes of the supertree, node 0 the root: `tokens`, `parents` (-1 at the
    root), `scores` (natural log-probability of the path under the drafter) and `ranks` (place among
    the depth's candidates, None where the builder has none). `verified` are the nodes sent to the
    target, None for all of them; `accepted` the path the target followed, root first. `context` is
    the text before the root and `texts` the text of each token id, `bonus` included.
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
        """Raise RecordError where the lists are of different lengths, or a node is named that is
        not there.
        """
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
                f"tree of sample {self.id!r} turn {self.turn} round {self.round}: its lists are no "
                "tree"
            )

    def text(self, token: int) -> str:
        """Text of a token id; ids without one (special tokens) are shown as numbers."""
        return self.texts.get(str(token)) or f"<{token}>"

    def children(self) -> list[list[int]]:
        """Per node its children, best path score first, equal scores by index."""
        below: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents[1:], start=1):
            below[parent].append(node)
        return [sorted(nodes, key=lambda node: (-self.scores[node], node)) for nodes in below]


def branches(
    parents: Sequence[int], scores: Sequence[float], path: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Where the path branched: each accepted node's place among its siblings, and how many children
    each node had.

    Args:
        parents, scores: [1+N] of the verified tree. path: accepted nodes, root first.
    Returns:
        places of path[1:] (0: the best path score), and the number of children of every node of the
        path.
    """
    below: dict[int, list[int]] = {node: [] for node in path}
    for node, parent in enumerate(parents):
        if parent in below:
            below[parent].append(node)
    places = []
    for parent, child in pairwise(path):
        places.append(sorted(below[parent], key=lambda node: (-scores[node], node)).index(child))
    return places, [len(below[node]) for node in path]
