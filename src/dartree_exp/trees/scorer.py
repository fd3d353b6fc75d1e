"""The scorers of a block, and how many levels a tree may have."""

from __future__ import annotations

from dartree_exp.interfaces import (
    Block,
    ConfidenceHead,
    CorrectionHead,
    Draws,
    Limits,
    Scorer,
)
from dartree_exp.trees.conditional import ConditionalScorer, ReleasedScorer
from dartree_exp.trees.marginal import MarginalScorer
from dartree_exp.trees.menu import BlockScorer
from dartree_exp.trees.static import CorrectedMarginals, StaticScorer


def levels(scorer: Scorer, limits: Limits) -> int:
    """How many levels a tree may have: none for a budget of 0. Raises ValueError for a negative
    one.
    """
    if limits.nodes < 0:
        raise ValueError(f"budget {limits.nodes} is negative")
    return min(limits.depth, scorer.num_drafts) if limits.nodes else 0


def make_scorer(
    scoring: str,
    block: Block,
    head: CorrectionHead | None,
    roots: int | tuple[int, ...],
    *,
    candidates: int | str,
    normalise: str = "candidates",
    menu: int | None = None,
    draws: Draws | None = None,
    confidence: ConfidenceHead | None = None,
) -> Scorer:
    """The scorer of one round.

    scoring: `marginal` (base logits: DFlash, DDTree), `static` (the head along its own greedy
    chain: one menu per depth) or `conditional` (the head along each node's own path: Domino,
    DominoTree, DARTree). roots: one for each request, or an int for a block without request axis.
    candidates: K, or "all". normalise: what log Z runs over, see `menu.MenuTable`. menu: DDTree's
    K = min(B, V) best of each depth's scored row; replaces `candidates`, and a static chain then
    runs over the whole draft vocabulary. draws: conditional only, how a chain drafts its
    uncorrected depths; None: their best. confidence: the head behind `Scorer.confidence`.

    Raises ValueError for an unknown name, or where a head is needed and there is none.
    """
    scorer = _of_block(scoring, block, head, roots, candidates, normalise, menu, draws)
    scorer.confidence_head = confidence
    return scorer


def _of_block(
    scoring: str,
    block: Block,
    head: CorrectionHead | None,
    roots: int | tuple[int, ...],
    candidates: int | str,
    normalise: str,
    menu: int | None,
    draws: Draws | None,
) -> BlockScorer:
    if scoring == "marginal":
        return MarginalScorer(block, roots, menu or candidates, normalise)
    if scoring not in ("static", "conditional"):
        raise ValueError(f"unknown scoring {scoring!r}: marginal, static or conditional")
    if head is None:
        raise ValueError(
            f"scoring={scoring} needs a drafter with a correction head; this one has none"
        )
    if scoring == "static" and menu is not None:
        whole = ConditionalScorer(block, roots, head, "all", "vocab")
        return CorrectedMarginals(block, whole, menu, normalise)
    if scoring == "conditional" and draws is not None:
        return ReleasedScorer(block, roots, head, menu or candidates, normalise, draws)
    conditional = ConditionalScorer(block, roots, head, menu or candidates, normalise)
    return conditional if scoring == "conditional" else StaticScorer(conditional)
