"""The scorer protocol: what a tree builder may ask about the drafter's opinion, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block
    from dartree_exp.drafters.heads.head import CorrectionHead


Draw = Callable[[Tensor, int], Tensor]
"""(logits [M], depth) -> int64 []: the place of a token drawn from softmax(logits / T), by noise of
the round and depth.
"""


class Scorer(Protocol):
    """Log-probabilities of the candidates of every depth, given a state per parent node.

    Depths run from 1 to `num_drafts`. A state is a tensor whose dim 0 is nodes; its contents are
    the scorer's own.
    """

    num_drafts: int
    path_dependent: (
        bool  # False: `score` ignores the state, so a depth has one menu for all its nodes
    )

    def start(self, root: int) -> Tensor:
        """State [1, ...] after reading the root."""

    def candidates(self, depth: int) -> Tensor:
        """Target token ids, int64 [K]: base logits descending, equal logits by token id."""

    def score(self, state: Tensor, depth: int) -> Tensor:
        """[N, K] log-probability of each candidate below each of N parents; never above 0, also in
        rounding.
        """

    def best(self, state: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best child of each parent: token int64 [N], log-prob [N], rank int64 [N] among the
        candidates.

        What the largest entries of `score` say, without putting the candidates in order. Equal
        scores go to the smaller rank, or to the smaller token id where the whole vocabulary is
        scored (Domino's argmax).
        """

    def top(self, state: Tensor, depth: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best children of each parent, best first: tokens, log-probs and ranks, [N, min(count,
        K)] each.

        `best` is the first column; equal scores stand in its order.
        """

    def advance(self, state: Tensor, depth: int, parent: Tensor, token: Tensor) -> Tensor:
        """States [M, ...] of new nodes at `depth`: token [M] read below row parent [M] of
        `state`.
        """

    def finite(self) -> bool:
        """Whether no corrected logit so far was NaN or infinite; reads the device. Base logits are
        not its business.
        """


def levels(scorer: Scorer, depth_limit: int, budget: int) -> int:
    """How many levels a tree of `budget` nodes may have: none for budget 0. Raises ValueError for a
    negative budget.
    """
    if budget < 0:
        raise ValueError(f"budget {budget} is negative")
    return min(depth_limit, scorer.num_drafts) if budget else 0


def make_scorer(
    scoring: str,
    block: Block,
    head: CorrectionHead | None,
    root: int,
    *,
    candidates: int | str,
    normalise: str = "candidates",
    menu: int | None = None,
    draw: Draw | None = None,
) -> Scorer:
    """The scorer of one round.

    scoring: `marginal` (base logits: DFlash, DDTree), `static` (the head along its own greedy
    chain: one menu per depth) or `conditional` (the head along each node's own path: Domino,
    DominoTree, DARTree). candidates: K, or "all". normalise: what log Z runs over, see
    `menu.MenuTable`. menu: DDTree's K = min(B, V) best of each depth's scored row; replaces
    `candidates`, and a static chain then runs over the whole draft vocabulary. draw: conditional
    only, how a chain drafts its uncorrected depths; None: their best. Raises ValueError for an
    unknown name, or where a head is needed and there is none.
    """
    from dartree_exp.trees.conditional import ConditionalScorer, ReleasedScorer
    from dartree_exp.trees.marginal import MarginalScorer
    from dartree_exp.trees.static import CorrectedMarginals, StaticScorer

    if scoring == "marginal":
        return MarginalScorer(block, menu or candidates, normalise)
    if scoring not in ("static", "conditional"):
        raise ValueError(f"unknown scoring {scoring!r}: marginal, static or conditional")
    if head is None:
        raise ValueError(
            f"scoring={scoring} needs a drafter with a correction head; this one has none"
        )
    if scoring == "static" and menu is not None:
        whole = ConditionalScorer(block, head, "all", "vocab")
        return CorrectedMarginals(block, whole, root, menu, normalise)
    if scoring == "conditional" and draw is not None:
        return ReleasedScorer(block, head, menu or candidates, normalise, draw)
    conditional = ConditionalScorer(block, head, menu or candidates, normalise)
    return conditional if scoring == "conditional" else StaticScorer(conditional, root)
