"""Corrected draft scores are looked at as base logits are: a broken head must not pass for a weak
one.
"""

from __future__ import annotations

from dartree_exp.drafters.drafter import Drafter
from dartree_exp.trees.scorer import Scorer
from dartree_exp.verify.walk import NonFiniteLogitsError


def check_scores(scorer: Scorer, drafter: Drafter, round_index: int, sample_id: str) -> None:
    """Raise `NonFiniteLogitsError` if the drafter's head made a logit NaN or infinite while the
    round's tree was built.
    """
    if not scorer.finite():
        raise NonFiniteLogitsError(
            f"corrected draft logits: the correction head of drafter {drafter.name!r} "
            f"({type(drafter.head).__name__}) gave"
            f" NaN or infinite values (round {round_index}, sample {sample_id!r})"
        )
