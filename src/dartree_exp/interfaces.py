"""The words of the decode loop as types: what a drafter, a builder, a policy, a verifier and an
engine hand to each other. Imports torch and the standard library only.

`*R` are leading request axes: the loop always has one, R requests (1 in a plain run). Scorers,
level-wise builders and masks act on the last axes alone, so that they also take tensors of one
request without that axis. Requests of different size are padded to one shape; what counts is said
by a length or size per request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dartree_exp.trees.tree import DraftTree


@dataclass(frozen=True)
class Block:
    """What one draft forward yields: drafting slots only, in the order of depth (slot j predicts
    depth j + 1, in both slot layouts).
    """

    hidden: Tensor  # [*R, D, H], final-normed backbone output, in the drafter's dtype
    logits: Tensor  # float32 [*R, D, Vd], base logits over the draft vocabulary
    vocab_ids: Tensor | None  # int64 [Vd], target id of each column, ascending; None: Vd = V

    def one(self, request: int) -> Block:
        """The block of one request, without request axis."""
        return replace(self, hidden=self.hidden[request], logits=self.logits[request])

    @staticmethod
    def stack(blocks: Sequence[Block]) -> Block:
        """Blocks of one request each, side by side along a new request axis."""
        first = blocks[0]
        if len(blocks) == 1:
            return replace(first, hidden=first.hidden[None], logits=first.logits[None])
        hidden = torch.stack([block.hidden for block in blocks])
        return replace(first, hidden=hidden, logits=torch.stack([block.logits for block in blocks]))


class CorrectionHead(Protocol):
    """Depth d (1..D) is corrected iff d > `pure_draft_prefix_len`; the state reads every token, the
    root first.

    States are tensors whose dim 0 is nodes: those of the first request, then those of the next, as
    many for each. What `prepare` returns is the head's own business and lives one round.
    """

    pure_draft_prefix_len: int

    def start(self, roots: int | tuple[int, ...]) -> Tensor:
        """State [R, S] after reading each request's root."""

    def prepare(self, block: Block, candidate_ids: Tensor) -> Any:
        """Tables of this round; candidate_ids are target ids, int64 [*R, D, K]."""

    def correction(self, prepared: Any, state: Tensor, depth: int) -> Tensor:
        """[N, K] to add to the base logits of the candidates of `depth`, for N parents."""

    def advance(
        self, prepared: Any, state: Tensor, depth: int, parent: Tensor, token: Tensor
    ) -> Tensor:
        """State [M, S] after reading token [M] at `depth`, below rows parent [M] of `state`."""


class ConfidenceHead(Protocol):
    """How likely a draft is accepted, given that all before it were."""

    def probability(self, hidden: Tensor, previous: Tensor, depth: Tensor) -> Tensor:
        """float32 [...] for hidden [..., H] of the draft's slot, the token before it and its depth,
        int64 [...].
        """


@dataclass(frozen=True)
class Commit:
    """What the last round committed: the rows that entered the target's cache, and the roots, which
    are committed but not in the cache yet.

    Rows are in the order of the text; request r has `lengths[r]` of them, ending at position
    `start[r] - 1`; further rows are padding. At first they are the whole prompt.
    """

    roots: tuple[int, ...]  # token of each request
    start: tuple[int, ...]  # absolute position of each root
    lengths: tuple[int, ...]
    ids: Tensor  # int64 [R, L]
    features: Tensor | None  # [R, L, taps * H], the tapped layers' outputs; None without taps
    hidden: Tensor  # [R, L, H], final-normed hidden states of the target

    def of(self, active: Sequence[bool]) -> Commit:
        """The same without rows of requests that have ended: those stand still."""
        lengths = tuple(n if on else 0 for n, on in zip(self.lengths, active, strict=True))
        return replace(self, lengths=lengths)


@dataclass(frozen=True)
class Probes:
    """Rows of a drafter's own that ride in the verification forward. They enter no answer.

    Row p sees the context, its parent and its parent's ancestors, and sits one position after its
    parent. A parent is a node of the tree, or 1+N+q for the earlier probe q.
    """

    tokens: Tensor  # int64 [R, P]
    parents: Tensor  # int64 [R, P]


@dataclass(frozen=True)
class Rows:
    """What one target forward reads: the tree's nodes, then the probes."""

    tokens: Tensor  # int64 [R, n]
    parents: Tensor  # int64 [R, n], -1 at the root and at padding
    positions: Tensor  # int64 [R, n], absolute
    masks: tuple[Tensor, ...]  # per request, additive [1, 1, n, past + n]
    nodes: int  # 1 + N: rows of the tree; the others are probes


@dataclass(frozen=True)
class Forward:
    """What one target forward yields, row by row."""

    logits: Tensor  # model dtype, [R, n, V]
    features: Tensor | None  # model dtype, [R, n, taps * H]; None without taps
    hidden: Tensor  # model dtype, [R, n, H], final-normed
    nodes: int

    @property
    def verify_logits(self) -> Tensor:
        """[R, 1+N, V], row i after node i."""
        return self.logits if self.nodes == self.logits.shape[1] else self.logits[:, : self.nodes]

    @property
    def probe_logits(self) -> Tensor:
        """[R, P, V]."""
        return self.logits[:, self.nodes :]


@dataclass(frozen=True)
class Accepted:
    """The path of each request through its tree, on the host; `path` is the same on the device."""

    paths: tuple[list[int], ...]  # node indices, the root (0) first
    tokens: tuple[list[int], ...]  # drafts on the path, the root left out
    bonus: tuple[int, ...]  # the target's own token after the path
    healthy: tuple[bool, ...]  # whether all draft logits were finite
    device: torch.device

    @property
    def path(self) -> Tensor:
        """int64 [R, L], padded with -1."""
        longest = max(map(len, self.paths))
        padded = [path + [-1] * (longest - len(path)) for path in self.paths]
        return torch.tensor(padded, device=self.device)


class Draws(Protocol):
    """Every random decision of a round. All noise is keyed by seed, sample, position and use."""

    start: tuple[int, ...]  # absolute position of each root

    def where(self, request: int) -> str:
        """For messages: `round 3, sample 'x'`."""

    def draft(self, logits: Tensor, depth: int) -> Tensor:
        """int64 [*R]: places drawn from softmax(logits [*R, M] / T), the best where T = 0. Its
        noise is independent of the target's.
        """

    def target_noise(self, depth: int, size: int) -> Tensor:
        """float64 [R, size]: the Gumbel noise of the target's own draw at a depth, for coupled
        drafting; zero where the target is greedy.
        """

    def target(self, request: int, logits: Tensor, depth: int) -> int:
        """The target's token at a depth, given its logits [V]."""

    def target_rows(self, logits: Tensor, depths: Tensor, deepest: int) -> Tensor:
        """int64 [R, n]: the same for all rows at once, on the device. depths: of the rows' nodes,
        at most `deepest`; row i predicts the token below it.
        """


class Scorer(Protocol):
    """Log-probabilities of the candidates of every depth, given a state for each parent node.

    Depths run from 1 to `num_drafts`. A state is the scorer's own: builders hand it back and never
    look inside.
    """

    num_drafts: int
    path_dependent: bool  # False: `score` ignores the state, so a depth has one menu for its nodes
    root: Tensor  # int64 [*R], the last committed tokens

    def start(self) -> Any:
        """State of one node for each request: the root has been read."""

    def candidates(self, depth: int) -> Tensor:
        """Target token ids, int64 [*R, K]: base logits descending, equal logits by token id."""

    def score(self, state: Any, depth: int) -> Tensor:
        """[*R, N, K] log-probability of each candidate below each of N parents; never above 0, also
        in rounding.
        """

    def best(self, state: Any, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best child of each parent: token int64, log-prob, rank int64 among the candidates,
        [*R, N] each.

        What the largest entries of `score` say, without putting the candidates in order. Equal
        scores go to the smaller rank, or to the smaller token id where the whole vocabulary is
        scored (Domino's argmax).
        """

    def top(self, state: Any, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best children of each parent, best first: tokens, log-probs and ranks, [*R, N,
        min(count, K)] each. `best` is the first column; equal scores stand in its order.
        """

    def advance(self, state: Any, depth: int, parent: Tensor, token: Tensor) -> Any:
        """State of new nodes at `depth`: token [*R, M] read below row parent [*R, M] of `state`."""

    def finite(self) -> Tensor:
        """bool [*R]: whether no draft logit so far was NaN or infinite; stays on the device."""

    def fault(self, request: int) -> str:
        """What is not finite, for a message; reads the device."""

    def one(self, request: int) -> Scorer:
        """The scorer of one request, without request axis."""

    # Optional, for parts that need them:
    #   sample(state, depth, draws) -> token, log q, rank, [*R, N] each: a draft drawn from q
    #   confidence(tree) -> float32 [*R, N]: how likely a draft is accepted, given those before it
    #   extend() -> bool: draft another block of depths; False where there is none


@dataclass(frozen=True)
class Limits:
    """How large the coming tree may be."""

    depth: int  # levels
    nodes: int  # without the root


class Builder(Protocol):
    """Turns a scorer into a tree. Builders hold no state between rounds."""

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """A prefix-closed tree of at most `limits.nodes` drafted nodes and min(limits.depth,
        drafts) levels for each request.

        Fewer nodes where the scorer has no more; the bare root for 0 nodes. Raises ValueError for a
        negative number.
        """


@dataclass(frozen=True)
class RoundView:
    """What a policy may look at before the tree is verified."""

    index: int  # of the round
    start: tuple[int, ...]  # absolute position of each root
    limits: Limits  # of the method: `tree.budget` nodes, the drafter's depth
    cost: Callable[[int], float]  # rows -> seconds of a target forward, as measured on this machine


@dataclass(frozen=True)
class RoundResult:
    """What came of a round."""

    tree: DraftTree
    accepted: Accepted
    forward: Forward
    time: dict[str, float]  # seconds by stage


class BudgetPolicy(Protocol):
    """`plan` is asked before the tree is built, `trim` after; `observe` tells what came of it."""

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        """How large the coming tree may be, at most `view.limits`."""

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        """The nodes of the built tree to verify: itself, or a prefix-closed part of it."""

    def observe(self, result: RoundResult) -> None: ...


class Verifier(Protocol):
    """Decides which path of the tree is committed."""

    exact: bool  # whether the target's output law is preserved
    proposals: tuple[str, ...]  # the kinds of `DraftTree.proposal` it is right for

    def __call__(
        self, tree: DraftTree, logits: Tensor, draws: Draws, healthy: Tensor | None = None
    ) -> Accepted:
        """logits: [R, 1+N, V] of the target, row i after node i. healthy: bool [R], fetched with
        the rest.

        Raises NonFiniteLogitsError for a row of the target that decides.
        """


class DraftSession(Protocol):
    """The drafting of the requests of one loop."""

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        """The scorer of the coming round."""

    def probes(self, tree: DraftTree) -> Probes | None:
        """Rows of the drafter's own for the verification forward."""

    def after(self, accepted: Accepted, forward: Forward) -> None:
        """What the verification forward said."""


@dataclass(frozen=True)
class Opening:
    """What a drafter gets when a loop starts."""

    prompts: Sequence[Sequence[int]]
    samplers: Sequence[Any]  # the target's decision rule of each request; scripted drafters use it
    scoring: Callable[[Block, Commit, Draws], Scorer]  # what the configuration makes of a block
    lend: Callable[[str], AbstractContextManager[None]]
    """`with lend("draft"):` within another stage gives the time to the draft stage."""


class Drafter(Protocol):
    """A drafter bound to one target."""

    name: str
    num_drafts: int  # D, the deepest draft of a block
    block_size: int  # b, slots of a block
    target_layer_ids: tuple[int, ...]  # taps it reads; id i is the output of decoder layer i
    max_positions: int  # it may use positions 0..max_positions-1; beyond, decode plainly

    @property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weights; None where there are no weight files."""

    def open(self, opening: Opening) -> DraftSession:
        """A fresh session for the requests of one loop."""


class Engine(Protocol):
    """How rows become logits, for R requests at once: caches, masks, forwards."""

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Commit]:
        """Logits [R, V] after each prompt, and the commit of the prompts; its roots are to come."""

    def rows(self, tree: DraftTree, probes: Probes | None) -> Rows: ...

    def forward(self, rows: Rows) -> Forward:
        """All rows enter the cache."""

    def commit(self, forward: Forward, accepted: Accepted, active: Sequence[bool]) -> Commit:
        """Keep the rows of the accepted paths, forget the others. A request that is not active
        stands still.
        """
