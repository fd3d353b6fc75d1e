"""The values that the parts of the loop exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.interfaces.parts import Draws, Scorer
from dartree_exp.interfaces.tree import DraftTree


@dataclass(frozen=True)
class Block:
    """The result of one draft forward: drafting slots only, by depth (slot j predicts depth j + 1,
    in both slot layouts).
    """

    hidden: Float[Tensor, "*R D H"]  # final-normed backbone output, in the drafter's dtype
    logits: Float[Tensor, "*R D Vd"]  # base logits over the draft vocabulary, float32 at least
    vocab_ids: Int64[Tensor, " Vd"] | None  # target id of each column, ascending; None: Vd = V

    def one(self, request: int) -> Block:
        """The block of one request, without request axis."""
        return replace(self, hidden=self.hidden[request], logits=self.logits[request])

    @staticmethod
    def stack(blocks: Sequence[Block]) -> Block:
        """Blocks of one request each, stacked along a new request axis."""
        first = blocks[0]
        if len(blocks) == 1:
            return replace(first, hidden=first.hidden[None], logits=first.logits[None])
        hidden = torch.stack([block.hidden for block in blocks])
        return replace(first, hidden=hidden, logits=torch.stack([block.logits for block in blocks]))


@dataclass(frozen=True)
class Commit:
    """The last round's commit: the rows that entered the target's cache, and the roots, which are
    committed but not in the cache yet.

    Rows are in the order of the text; request r has `lengths[r]` of them, ending at position
    `start[r] - 1`; further rows are padding. The first commit is the whole prompt.
    """

    roots: tuple[int, ...]  # token of each request
    start: tuple[int, ...]  # absolute position of each root
    lengths: tuple[int, ...]
    ids: Int64[Tensor, "R L"]
    features: Float[Tensor, "R L taps_H"] | None  # the tapped layers' outputs; None without taps
    hidden: Float[Tensor, "R L H"]  # final-normed hidden states of the target

    def of(self, active: Sequence[bool]) -> Commit:
        """The same with length 0 for requests that have ended."""
        lengths = tuple(n if on else 0 for n, on in zip(self.lengths, active, strict=True))
        return replace(self, lengths=lengths)


@dataclass(frozen=True)
class Probes:
    """The drafter's own rows in the verification forward. They are never committed.

    Row p attends to the context, its parent and its parent's ancestors; its position is one after
    its parent's. A parent is a node of the tree, or 1+N+q for the earlier probe q.
    """

    tokens: Int64[Tensor, "R P"]
    parents: Int64[Tensor, "R P"]


@dataclass(frozen=True)
class Rows:
    """The input of one target forward: the tree's nodes, then the probes."""

    tokens: Int64[Tensor, "R n"]
    parents: Int64[Tensor, "R n"]  # -1 at the root and at padding
    positions: Int64[Tensor, "R n"]  # absolute
    masks: tuple[Float[Tensor, "*_ n _"], ...]  # for each request, made by the engine
    nodes: int  # 1+N rows of the tree; the others are probes


@dataclass(frozen=True)
class Forward:
    """The output of one target forward, row by row, in the model's dtype."""

    logits: Float[Tensor, "R n V"]
    features: Float[Tensor, "R n taps_H"] | None  # None without taps
    hidden: Float[Tensor, "R n H"]  # final-normed
    nodes: int

    @property
    def verify_logits(self) -> Float[Tensor, "R {self.nodes} V"]:
        """Row i after node i."""
        return self.logits if self.nodes == self.logits.shape[1] else self.logits[:, : self.nodes]

    @property
    def probe_logits(self) -> Float[Tensor, "R P V"]:
        """Row p after probe p."""
        return self.logits[:, self.nodes :]


@dataclass(frozen=True)
class Accepted:
    """The path of each request through its tree, on the host; `path` is the same on the device."""

    paths: tuple[list[int], ...]  # node indices, the root (0) first
    tokens: tuple[list[int], ...]  # drafts on the path, without the root
    bonus: tuple[int, ...]  # the target's own token after the path
    healthy: tuple[bool, ...]  # whether all draft logits were finite
    device: torch.device

    @property
    def path(self) -> Int64[Tensor, "R L"]:
        """Padded with -1."""
        longest = max(map(len, self.paths))
        padded = [path + [-1] * (longest - len(path)) for path in self.paths]
        return torch.tensor(padded, device=self.device)


@dataclass(frozen=True)
class Limits:
    """The largest size of the next tree."""

    depth: int  # levels
    nodes: int  # without the root


@dataclass(frozen=True)
class Overhead:
    """Seconds of a round besides the verification, measured on this machine; 0: unmeasured."""

    draft: float = 0.0
    rest: float = 0.0  # build, mask, commit, other

    @property
    def total(self) -> float:
        return self.draft + self.rest


NO_OVERHEAD = Overhead()


@dataclass(frozen=True)
class RoundView:
    """What a policy may read before the tree is verified."""

    index: int  # of the round; 0: a new loop, with other requests
    start: tuple[int, ...]  # absolute position of each root
    limits: Limits  # of the method: `tree.budget` nodes, the drafter's depth
    # rows -> seconds of a verification, measured on this machine; NaN: unmeasured
    cost: Callable[[int], float]
    overhead: Overhead = NO_OVERHEAD
    temperatures: tuple[float, ...] = ()  # of each request's target


@dataclass(frozen=True)
class RoundResult:
    """The result of a round."""

    tree: DraftTree
    accepted: Accepted
    forward: Forward
    time: dict[str, float]  # seconds by stage


@dataclass(frozen=True)
class Opening:
    """The argument of `Drafter.open`, when a loop starts."""

    prompts: Sequence[Sequence[int]]
    samplers: Sequence[Any]  # the target's decision rule of each request; scripted drafters use it
    scoring: Callable[[Block, Commit, Draws], Scorer]  # makes the configured scorer of a block
    lend: Callable[[str], AbstractContextManager[None]]
    """`with lend("draft"):` within another stage charges the time to the draft stage."""
