"""Runs drafters that propose one block per request in a loop over any number of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.interfaces import (
    Accepted,
    Block,
    Commit,
    DraftSession,
    Draws,
    Forward,
    Opening,
    Probes,
    Scorer,
)


class Proposer(Protocol):
    """The drafting of one prompt."""

    def propose(self, features: Tensor | None, root: int, start: int) -> Block:
        """One block after the root at absolute position `start`, without a request axis.

        features: [C, n*H], the target's tapped hidden states of the C tokens committed since the
        last call (at first the whole prompt, later the last round's root and accepted drafts); None
        for a drafter without taps. Raises ValueError if they do not end exactly at `start`.
        """


class BlockDrafter:
    """A `Drafter` made from sessions that propose blocks for one request each."""

    def session(self, prompt_ids: Sequence[int], sampler: Any = None) -> Proposer:
        """A new session for a prompt. sampler: the target's, None for greedy; trained drafters
        ignore it.
        """
        raise NotImplementedError

    def open(self, opening: Opening) -> DraftSession:
        pairs = zip(opening.prompts, opening.samplers, strict=True)
        return BlockSession([self.session(ids, sampler) for ids, sampler in pairs], opening)


class BlockSession:
    """One `Proposer` per request; blocks are stacked and scored together."""

    def __init__(self, proposers: Sequence[Proposer], opening: Opening) -> None:
        self._proposers, self._scoring = proposers, opening.scoring
        self._blocks: dict[int, Block] = {}
        # features of commits that no block was drafted after yet, by request
        self._waiting: list[list[Tensor]] = [[] for _ in proposers]

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        self._note(commit)
        for r, proposer in enumerate(self._proposers):
            if not commit.lengths[r]:
                continue  # the request has ended
            rows = None if commit.features is None else _joined(self._waiting[r])
            self._waiting[r] = []
            self._blocks[r] = proposer.propose(rows, commit.roots[r], commit.start[r])
        any_block = next(iter(self._blocks.values()))  # for one that ended before its first
        blocks = [self._blocks.get(r, any_block) for r in range(len(self._proposers))]
        return self._scoring(Block.stack(blocks), commit, draws)

    def skip(self, commit: Commit) -> Scorer:
        self._note(commit)
        return NoDrafts.after(commit)

    def _note(self, commit: Commit) -> None:
        if commit.features is not None:
            for waiting, rows, length in zip(
                self._waiting, commit.features, commit.lengths, strict=True
            ):
                if length:
                    waiting.append(rows[:length])

    def probes(self, tree: object) -> Probes | None:
        return None

    def after(self, accepted: Accepted, forward: Forward) -> None:
        return None


def _joined(rows: Sequence[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(list(rows))
