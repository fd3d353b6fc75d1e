"""PTD's draft tree (arXiv 2607.10661): guesses that grow by one level in every forward, and the
pool of continuations that finished guesses leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from dartree_exp.drafters.trie import Trie

ROOT = -1  # parent of the first guess: the last committed token


@dataclass
class Guess:
    """A guessed token and its guessed continuations."""

    token: int
    children: list[Guess] = field(default_factory=list)

    def depth(self) -> int:
        """Levels below and with this one."""
        return 1 + max((child.depth() for child in self.children), default=0)

    def walk(self) -> Iterator[Guess]:
        """This and all guesses below."""
        yield self
        for child in self.children:
            yield from child.walk()

    def trie(self) -> Trie:
        """Its continuations, each counted once."""
        made = Trie()
        for child in self.children:
            below = child.trie()
            below.count = 1
            made.children[child.token] = below
        return made


@dataclass(frozen=True)
class Shape:
    """Bounds of a forest: levels of a guess, children of a node, rows in all, first guesses."""

    depth: int
    children: int
    rows: int
    first: int = 2


class Forest:
    """The guesses of one request. First-level guesses form a chain: each is read after the one
    before it, without that one's continuations. prompt: where first guesses are drawn from.
    """

    def __init__(
        self, shape: Shape, prompt: Sequence[int], seed: int, stop_ids: Collection[int]
    ) -> None:
        self._shape, self._stop = shape, frozenset(stop_ids)
        self._draw = Random(f"{seed} {list(prompt)}")
        self._seeds = [token for token in prompt if token not in self._stop] or [prompt[0]]
        self._first = [self._fresh() for _ in range(shape.first)]
        self._nodes: list[Guess] = []
        self.pool: dict[int, Trie] = {}

    def _fresh(self) -> Guess:
        return Guess(self._draw.choice(self._seeds))

    def rows(self) -> tuple[list[int], list[int]]:
        """Tokens of all guesses and the index of each one's parent, `ROOT` for the first."""
        self._nodes, parents = [], []

        def add(guess: Guess, parent: int) -> int:
            self._nodes.append(guess)
            parents.append(parent)
            place = len(parents) - 1
            for child in guess.children:
                add(child, place)
            return place

        above = ROOT
        for guess in self._first:
            above = add(guess, above)
        return [guess.token for guess in self._nodes], parents

    def grow(self, said: Sequence[int]) -> None:
        """Add the target's own token after each guess, in the order of `rows`, as its newest child.

        A node keeps at most `children` of them, without tokens that end a text. The nodes of a
        guess of full depth go to the pool, each under its token, and another guess starts in its
        place; also the deepest one if there is no room for more rows.
        """
        room = self._shape.rows - len(self._nodes)
        for guess, token in zip(self._nodes, said, strict=True):
            known = any(child.token == token for child in guess.children)
            full = len(guess.children) >= self._shape.children
            if room > 0 and not known and not full and token not in self._stop:
                guess.children.append(Guess(token))
                room -= 1
        depths = [guess.depth() for guess in self._first]
        done = [i for i, depth in enumerate(depths) if depth > self._shape.depth]
        if room <= 0 and not done:
            done = [depths.index(max(depths))]
        for i in done:
            guess, self._first[i] = self._first[i], self._fresh()
            for node in guess.walk():
                if node.children:
                    self.pool.setdefault(node.token, Trie()).merge(node.trie())
