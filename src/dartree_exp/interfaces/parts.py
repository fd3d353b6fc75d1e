"""The parts of the loop as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from dartree_exp.interfaces.tree import DraftTree

if TYPE_CHECKING:
    from dartree_exp.interfaces.values import (
        Accepted,
        Commit,
        Forward,
        Limits,
        Opening,
        Probes,
        RoundResult,
        RoundView,
        Rows,
    )


# Tokens, log-probabilities and ranks of children.
Best = tuple[Int64[Tensor, "*R N"], Float[Tensor, "*R N"], Int64[Tensor, "*R N"]]
Top = tuple[Int64[Tensor, "*R N k"], Float[Tensor, "*R N k"], Int64[Tensor, "*R N k"]]


class Sample(NamedTuple):
    """Drafts below N parents, in the order in which they were drawn, and the laws of the draws."""

    tokens: Int64[Tensor, "*R N count"]
    log_probs: Float[Tensor, "*R N count"]  # under the drafter, without temperature
    ranks: Int64[Tensor, "*R N count"]
    law: Float[Tensor, "*R N K"]  # log q
    ids: Int64[Tensor, "*R K"] | Int64[Tensor, " K"]  # target ids of the law's columns


class Draws(Protocol):
    """Every random decision of a round. All noise is keyed by seed, sample, position and use."""

    start: tuple[int, ...]  # absolute position of each root

    def where(self, request: int) -> str:
        """The place to name in messages: `round 3, sample 'x'`."""

    def draft(self, logits: Float[Tensor, "*R K"], depth: int) -> Int64[Tensor, "*R"]:
        """Indices drawn from softmax(logits / T), the argmax at T = 0. The noise is independent of
        the target's.
        """

    def drafts(
        self, logits: Float[Tensor, "*R N K"], depth: int, count: int, temperature: float | None
    ) -> tuple[Int64[Tensor, "*R N {count}"], Float64[Tensor, "*R N K"]]:
        """Drafts drawn without replacement from the law of each row: indices in the order of the
        draws, and the laws as log-probabilities. A law is that of logits after `temperature`
        (None: the target's), top-k and top-p of the target. At temperature 0 the best, in order.
        """

    def greedy(self, request: int) -> bool:
        """Whether the target takes the argmax."""

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The target's, of each request."""

    def kept(
        self, request: int, logits: Float[Tensor, "*rows K"], temperature: float
    ) -> Bool[Tensor, "*rows K"] | None:
        """What the target's top-k and top-p keep of logits after `temperature`; None: it has
        neither.
        """

    def law(self, request: int, logits: Float[Tensor, " V"]) -> Float64[Tensor, " V"]:
        """The probabilities that the target draws from, given its logits."""

    def uniforms(self, request: int, depth: int, size: int) -> list[float]:
        """Uniform numbers in [0, 1) for a verifier's decisions on the token at a depth, independent
        of the target's draw and of the drafts.
        """

    def one(self, request: int) -> Draws:
        """The draws of one request, as request 0."""

    def target_noise(self, depth: int, size: int) -> Float64[Tensor, "R {size}"]:
        """The Gumbel noise of the target's own draw at a depth, for coupled drafting; zero if the
        target is greedy.
        """

    def target(self, request: int, logits: Float[Tensor, " V"], depth: int) -> int:
        """The target's token at a depth, given its logits."""

    def target_rows(
        self, logits: Float[Tensor, "R n V"], depths: Int64[Tensor, "R n"], deepest: int
    ) -> Int64[Tensor, "R n"]:
        """The same for all rows at once, on the device. Row i predicts the token after node i.

        depths: of the nodes, at most `deepest`.
        """


class Scorer(Protocol):
    """Log-probabilities of the candidates of every depth, given a state for each parent node.

    Depths run from 1 to `num_drafts`. States are opaque to builders.
    """

    num_drafts: int
    path_dependent: bool  # False: `score` ignores the state; all nodes of a depth share one menu
    root: Int64[Tensor, "*R"]  # the last committed tokens

    def start(self) -> Any:
        """State of each request's root."""

    def candidates(self, depth: int) -> Int64[Tensor, "*R K"]:
        """Target token ids: base logits descending, equal logits by token id."""

    def score(self, state: Any, depth: int) -> Float[Tensor, "*R N K"]:
        """Log-probability of each candidate below each of N parents; never above 0."""

    def best(self, state: Any, depth: int) -> Best:
        """The best child of each parent: token, log-probability, rank among the candidates.

        These are the largest entries of `score`, found without sorting the candidates. Equal scores
        go to the smaller rank, or to the smaller token id if the whole vocabulary is scored
        (Domino's argmax).
        """

    def top(self, state: Any, depth: int, count: int) -> Top:
        """The k = min(count, K) best children of each parent, best first: tokens, log-probabilities
        and ranks. Ties as in `best`, which is the first column.
        """

    def advance(
        self, state: Any, depth: int, parent: Int64[Tensor, "*R M"], token: Int64[Tensor, "*R M"]
    ) -> Any:
        """State of new nodes at `depth`: `token` read below row `parent` of `state`."""

    def finite(self) -> Bool[Tensor, "*R"]:
        """Whether all draft logits so far were finite; stays on the device."""

    def fault(self, request: int) -> str:
        """A message that names what is not finite; reads the device."""

    def one(self, request: int) -> Scorer:
        """The scorer of one request, without request axis."""

    # Optional, for parts that need them:
    #   excludes: True if a score of -inf says that a candidate never follows its parent; nodes of
    #     that score are left out of trees
    #   confidence(tree) -> float32 [*R, N]: probability of acceptance, given the drafts before it
    #   length() -> float32 [*R]: tokens that the round is expected to advance
    #   extend() -> bool: draft another block of depths; False if there is none


class SamplingScorer(Scorer, Protocol):
    """A scorer for tree=sampled."""

    def sample(
        self, state: Any, depth: int, draws: Draws, count: int, temperature: float | None
    ) -> Sample:
        """`count` drafts below each parent, drawn by `Draws.drafts`; fewer if there are fewer
        candidates.
        """


class Builder(Protocol):
    """Turns a scorer into a tree. Builders hold no state between rounds."""

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        """A prefix-closed tree of at most `limits.nodes` drafted nodes and min(limits.depth,
        drafts) levels for each request; the bare root for 0 nodes.

        Raises ValueError for a negative number.
        """


class BudgetPolicy(Protocol):
    """In each round: `drafts`, then `plan` before the tree is built, `trim` after, `observe` after
    verification.
    """

    def drafts(self, view: RoundView) -> bool:
        """Whether to draft in this round; False: the target makes one plain step."""

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        """Limits of the next tree, at most `view.limits`."""

    def trim(self, view: RoundView, tree: DraftTree, scorer: Scorer) -> DraftTree:
        """The nodes of the built tree to verify: itself, or a prefix-closed part of it."""

    def observe(self, result: RoundResult) -> None: ...


class Verifier(Protocol):
    """Decides which path of the tree is committed."""

    exact: bool  # whether the target's output distribution is preserved
    proposals: tuple[str, ...]  # the kinds of `DraftTree.proposal` it is correct for

    def __call__(
        self,
        tree: DraftTree,
        logits: Float[Tensor, "R n V"],
        draws: Draws,
        healthy: Bool[Tensor, " R"] | None = None,
    ) -> Accepted:
        """logits: of the target, row i after node i. healthy: returned in `Accepted.healthy`, on
        the host.

        Raises NonFiniteLogitsError if a row on the path is not finite.
        """


class DraftSession(Protocol):
    """The drafting state of the requests of one loop."""

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        """The scorer of the next round."""

    def skip(self, commit: Commit) -> Scorer:
        """Take note of a commit without drafting; returns a scorer without depths."""

    def probes(self, tree: DraftTree) -> Probes | None:
        """The drafter's own rows for the verification forward."""

    def after(self, accepted: Accepted, forward: Forward) -> None:
        """Called with the results of the verification forward."""


class Drafter(Protocol):
    """A drafter bound to one target."""

    name: str
    num_drafts: int  # D, the deepest draft of a block
    block_size: int  # b, slots of a block
    target_layer_ids: tuple[int, ...]  # taps it reads; id i is the output of decoder layer i
    max_positions: int  # positions it can draft at are 0..max_positions-1; then plain decoding

    @property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weights; None if there are no weight files."""

    def open(self, opening: Opening) -> DraftSession:
        """A fresh session for the requests of one loop."""


class Engine(Protocol):
    """Computes the logits of rows, for R requests at once: caches, masks, forwards."""

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Float[Tensor, "R V"], Commit]:
        """Logits after each prompt, and the commit of the prompts, whose roots are not set yet."""

    def rows(self, tree: DraftTree, probes: Probes | None) -> Rows: ...

    def forward(self, rows: Rows) -> Forward:
        """All rows enter the cache."""

    def commit(self, forward: Forward, accepted: Accepted, active: Sequence[bool]) -> Commit:
        """Keep the rows of the accepted paths, drop the others. Nothing is committed for a request
        that is not active.
        """
