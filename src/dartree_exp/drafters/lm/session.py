"""Autoregressive drafting by a language model with a cache of its own (Leviathan et al., arXiv
2211.17192).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.drafters.texts import Texts
from dartree_exp.interfaces import (
    Accepted,
    Commit,
    Draws,
    Forward,
    Opening,
    Probes,
    Sample,
    Scorer,
)
from dartree_exp.trees.lift import EachScorer

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

State = tuple[list[int], Tensor]  # nodes, and the logits after them [N, V]


class LmDrafter:
    """See `interfaces.Drafter`."""

    head = confidence = None
    target_layer_ids: tuple[int, ...] = ()

    def __init__(self, lm: Target, target: Target, num_drafts: int, name: str = "lm") -> None:
        self.lm, self.name = lm, name
        self.num_drafts = self.block_size = num_drafts
        self.vocab_size = min(lm.vocab_size, target.vocab_size)  # either may have unused rows
        self.max_positions = min(lm.max_positions, target.max_positions)

    @property
    def weights_sha256(self) -> str | None:
        return self.lm.weights_sha256

    def open(self, opening: Opening) -> LmSession:
        return LmSession(self, opening)


class LmSession:
    def __init__(self, drafter: LmDrafter, opening: Opening) -> None:
        self._texts = Texts(opening.prompts)
        self._drafts = [Drafting(drafter, text, opening.lend) for text in self._texts.ids]

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        self._texts.read(commit)
        for drafting in self._drafts:
            drafting.begin()
        return EachScorer(self._drafts)

    def skip(self, commit: Commit) -> Scorer:
        self._texts.read(commit)
        return NoDrafts.after(commit)

    def probes(self, tree: object) -> Probes | None:
        return None

    def after(self, accepted: Accepted, forward: Forward) -> None:
        for drafting, tokens in zip(self._drafts, accepted.tokens, strict=True):
            drafting.keep(tokens)


class Drafting:
    """The cache of one request, and the scorer of its round.

    The cache holds the text without the root, then the rows of `_cached` nodes. One new node below
    them is one more row; siblings need a mask, and then the nodes of the round are read again.
    """

    path_dependent = True

    def __init__(
        self,
        drafter: LmDrafter,
        text: list[int],
        lend: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._lm, self._vocab, self._text, self._lend = drafter.lm, drafter.vocab_size, text, lend
        self.num_drafts = drafter.num_drafts
        self._cache = self._lm.new_cache(2 * len(text) + 64)
        self._past = 0  # rows of the text without the root
        self._nodes: dict[tuple[int, int], int] = {}  # of this round, by parent and token
        self._cached = [0]  # the nodes in the cache

    def begin(self) -> None:
        """Read what was committed, and the root."""
        text, device = self._text, self._lm.device
        self._past = len(text) - 1
        self._tokens, self._parents, self._depths = [text[-1]], [-1], [0]
        self._nodes, self._cached = {}, [0]
        self.root = torch.tensor(text[-1], device=device)
        self._room(1)
        self._cache.keep(min(self._cache.length, self._past))
        self._first = self._extend(len(text))
        self._finite = self._first.isfinite().all()

    def keep(self, accepted: list[int]) -> None:
        """Keep the rows of the root and of the accepted drafts that were read."""
        node, rows = 0, [0]
        for token in accepted:
            node = self._nodes.get((node, token), -1)
            if node not in self._cached:
                break
            rows.append(self._cached.index(node))
        if self._cache.length > self._past:
            self._cache.keep(self._past, [self._past + row for row in rows])

    def _room(self, rows: int) -> None:
        """Make room for rows after the text; a cache that is too small is made again."""
        need = self._past + rows
        if need <= self._cache.capacity:
            return
        self._cache = self._lm.new_cache(2 * need)
        if self._past:
            self._extend(self._past)

    def _extend(self, end: int) -> Tensor:
        """Read the text up to `end`; logits [1, V] after it."""
        # The target may emit an id that only its embedding has a row for.
        most = self._lm.vocab_size - 1
        ids = [min(token, most) for token in self._text[self._cache.length : end]]
        return self._lm.prefill(ids, self._cache).logits

    def start(self) -> State:
        return [0], self._first[..., : self._vocab]

    def candidates(self, depth: int) -> Tensor:
        return torch.arange(self._vocab, device=self.root.device)

    def score(self, state: State, depth: int) -> Tensor:
        wide = torch.promote_types(state[1].dtype, torch.float32)
        return state[1].to(wide).log_softmax(-1)

    def best(self, state: State, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        log_prob, token = self.score(state, depth).max(-1)
        return token, log_prob, token

    def top(self, state: State, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        log_probs, tokens = self.score(state, depth).sort(dim=-1, descending=True, stable=True)
        return tokens[:, :count], log_probs[:, :count], tokens[:, :count]

    def sample(
        self, state: State, depth: int, draws: Draws, count: int, temperature: float | None
    ) -> Sample:
        rows = self.score(state, depth)
        tokens, law = draws.drafts(rows, depth, min(count, self._vocab), temperature)
        return Sample(tokens, rows.gather(-1, tokens), tokens, law, self.candidates(depth))

    def advance(self, state: State, depth: int, parent: Tensor, token: Tensor) -> State:
        new = []
        for above, read in zip(parent.flatten().tolist(), token.flatten().tolist(), strict=True):
            node = state[0][above]
            self._nodes[node, read] = len(self._tokens)
            new.append(len(self._tokens))
            self._tokens.append(read)
            self._parents.append(node)
            self._depths.append(self._depths[node] + 1)
        with self._lend("draft"):
            logits = self._read(new)
        self._finite = self._finite & logits.isfinite().all()
        return new, logits[:, : self._vocab]

    def _read(self, new: list[int]) -> Tensor:
        """Logits [N, V] after new nodes."""
        if len(new) == 1 and self._cached == self._path(self._parents[new[0]]):
            self._room(len(self._cached) + 1)
            if self._cache.length == self._past + len(self._cached):
                self._cached.append(new[0])
                return self._lm.step(self._tokens[new[0]], self._cache)[None]
        self._room(len(self._tokens))
        self._cache.keep(self._past)
        device = self._lm.device
        tokens, parents, depths = torch.tensor(
            [self._tokens, self._parents, self._depths], device=device
        ).unbind()
        mask = self._lm.mask(parents, self._past)
        out = self._lm.verify(tokens, depths[None] + self._past, mask, self._cache)
        self._cached = list(range(len(self._tokens)))
        return out.logits[new]

    def _path(self, node: int) -> list[int]:
        """From the root to a node."""
        path = [node]
        while path[0]:
            path.insert(0, self._parents[path[0]])
        return path

    def finite(self) -> Tensor:
        return self._finite

    def fault(self, request: int) -> str:
        return "draft logits: not all values are finite"

    def one(self, request: int) -> Any:
        return self
