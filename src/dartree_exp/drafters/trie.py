"""Continuations seen before as a trie, and the scorer over it, for drafters without a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.interfaces import Best, Scorer, Top
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.lift import EachScorer


@dataclass
class Trie:
    """A token's continuations with the number of times each was added."""

    count: int = 0
    children: dict[int, Trie] = field(default_factory=dict)

    def add(self, path: Sequence[int]) -> None:
        """Add one continuation, with all its prefixes."""
        node = self
        for token in path:
            node = node.children.setdefault(token, Trie())
            node.count += 1

    def merge(self, other: Trie) -> None:
        """Add all continuations of another trie."""
        for token, theirs in other.children.items():
            mine = self.children.setdefault(token, Trie())
            mine.count += theirs.count
            mine.merge(theirs)

    def levels(self, depth: int) -> list[list[int]]:
        """Distinct tokens of the first `depth` levels, the most frequent first, then by id."""
        found: list[list[int]] = []
        level = [self]
        while len(found) < depth:
            counts: dict[int, int] = {}
            for node in level:
                for token, child in node.children.items():
                    counts[token] = counts.get(token, 0) + child.count
            if not counts:
                break
            found.append(sorted(counts, key=lambda token: (-counts[token], token)))
            level = [child for node in level for child in node.children.values()]
        return found


NOWHERE = Trie()
"""The state of a node that is in no trie."""


class TrieScorer:
    """One request's `Scorer` over a trie. A child's score is log(count / (1 + the sum of its
    siblings' counts)), -inf for tokens that never followed. A state is one trie for each node.

    tokens: by depth, at least those of the trie.
    """

    path_dependent = excludes = True

    def __init__(self, trie: Trie, root: Tensor, tokens: Sequence[Sequence[int]]) -> None:
        self.num_drafts, self.root, self._trie = len(tokens), root, trie
        self._ids = [torch.tensor(list(level), device=root.device) for level in tokens]
        self._tokens = tokens

    def start(self) -> list[Trie]:
        return [self._trie]

    def candidates(self, depth: int) -> Int64[Tensor, " K"]:
        return self._ids[depth - 1]

    def score(self, state: list[Trie], depth: int) -> Float[Tensor, "N K"]:
        rows = []
        for node in state:
            total = 1 + sum(child.count for child in node.children.values())
            counts = (node.children.get(token) for token in self._tokens[depth - 1])
            rows.append([-math.inf if c is None else math.log(c.count / total) for c in counts])
        return torch.tensor(rows, device=self.root.device)

    def best(self, state: list[Trie], depth: int) -> Best:
        token, score, rank = self.top(state, depth, 1)
        return token[:, 0], score[:, 0], rank[:, 0]

    def top(self, state: list[Trie], depth: int, count: int) -> Top:
        ids = self._ids[depth - 1]
        scores, ranks = stable_topk(self.score(state, depth), min(count, len(ids)))
        return ids[ranks], scores, ranks

    def advance(
        self, state: list[Trie], depth: int, parent: Int64[Tensor, " M"], token: Int64[Tensor, " M"]
    ) -> list[Trie]:
        pairs = zip(parent.tolist(), token.tolist(), strict=True)
        return [state[above].children.get(read, NOWHERE) for above, read in pairs]

    def finite(self) -> Bool[Tensor, ""]:
        return torch.tensor(True, device=self.root.device)

    def fault(self, request: int) -> str:
        raise AssertionError("counts are finite")

    def one(self, request: int) -> TrieScorer:
        return self


def trie_scorer(
    tries: Sequence[Trie], roots: Sequence[int], depth: int, device: torch.device
) -> Scorer | None:
    """The scorer of the requests' continuations, of at most `depth` tokens; None if there are none.

    Every depth of every request has the same number of candidates: the rest are ids that never
    follow there.
    """
    levels = [trie.levels(depth) for trie in tries]
    deepest = max(map(len, levels))
    if not deepest:
        return None
    most = max(len(level) for own in levels for level in own)
    scorers = []
    for trie, root, own in zip(tries, roots, levels, strict=True):
        padded = [*own, *([[]] * (deepest - len(own)))]
        tokens = [filled(level, most) for level in padded]
        scorers.append(TrieScorer(trie, torch.tensor(root, device=device), tokens))
    return EachScorer(scorers)


def filled(tokens: list[int], count: int) -> list[int]:
    """`count` distinct ids: the tokens, then the smallest others."""
    others = (token for token in range(count) if token not in set(tokens))
    return [*tokens, *islice(others, count - len(tokens))]
