"""Makes the configured scorer of a block; the number of levels of a tree."""

from __future__ import annotations

from dartree_exp.interfaces import (
    Block,
    ConfidenceHead,
    CorrectionHead,
    Draws,
    LengthHead,
    Limits,
    Scorer,
)
from dartree_exp.trees.menu import BlockScorer, Scoring
from dartree_exp.trees.spec import LATENT_SUMMED, SCORERS


def levels(scorer: Scorer, limits: Limits) -> int:
    """The most levels of a tree: 0 for a budget of 0. Raises ValueError for a negative budget."""
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
    length: LengthHead | None = None,
    latent: str = LATENT_SUMMED,
) -> Scorer:
    """The scorer of one round.

    scoring: the name of a `ScorerSpec`. roots: one for each request, or an int for a block without
    request axis. candidates, normalise, menu, draws, latent: see `menu.Scoring`. confidence,
    length: the heads behind `Scorer.confidence` and `Scorer.length`.

    Raises ConfigError for an unknown name, ValueError if a head is needed and there is none.
    """
    spec = SCORERS[scoring]
    if spec.corrects and head is None:
        raise ValueError(
            f"scoring={scoring} needs a drafter with a correction head; this one has none"
        )
    how = Scoring(candidates, normalise, menu, draws, latent)
    scorer: BlockScorer = spec.load().of_round(block, roots, head, how)
    scorer.confidence_head, scorer.length_head = confidence, length
    return scorer
