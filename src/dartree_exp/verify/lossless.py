"""The verdict on one output: `exact`, `near_tie` or `wrong` against plain decoding of the same target.

In bf16 a forward over 65 rows and one over a single row round differently, so a greedy flip can be honest. A
teacher-forced pass over the common prefix decides: both differing tokens must lie within a tolerance, fixed
beforehand for the dtype, of the maximum of the deciding score (logits; log p + g at T > 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dartree_exp.models.target import Target
from dartree_exp.verify.sampling import Sampler

# In logits, about three to five times the largest difference between a one-row step and a tree row that
# `benchmarks/row_difference.py` measured on the embedded model (docs/decisions/0003-near-tie.md).
TOLERANCE = {torch.float64: 1e-8, torch.float32: 5e-4, torch.bfloat16: 1.0}


@dataclass(frozen=True)
class Verdict:
    verdict: str | None  # exact | near_tie | wrong; None: nothing to judge
    detail: dict[str, Any] | None = None


def compare_ids(ids: list[int], reference: list[int]) -> int | None:
    """Index of the first difference (a missing token differs), or None if equal."""
    if ids == reference:
        return None
    return next(
        (i for i, (a, b) in enumerate(zip(ids, reference, strict=False)) if a != b), min(len(ids), len(reference))
    )


@torch.inference_mode()
def judge(
    target: Target,
    prompt_ids: list[int],
    ids: list[int],
    reference: list[int],
    sampler: Sampler,
    tolerance: float | None = None,
) -> Verdict:
    """Judge `ids` against AR's `reference` of the same prompt, sampler and stop rule.

    Args:
        tolerance: in logits; None takes the dtype's entry of `TOLERANCE`.
    """
    at = compare_ids(ids, reference)
    if at is None:
        return Verdict("exact")
    detail: dict[str, Any] = {"index": at, "position": len(prompt_ids) + at}
    if at == min(len(ids), len(reference)):
        # Under one stop rule a strict prefix cannot come from rounding: somebody stopped wrongly.
        return Verdict(
            "wrong", detail | {"reason": f"lengths {len(ids)} and {len(reference)} with equal common prefix"}
        )
    context = prompt_ids + reference[:at]
    cache = target.new_cache(len(context))
    logits = target.prefill(context, cache, ()).logits[-1].double()
    scores = sampler.scores(logits, len(context))
    tolerance = TOLERANCE[target.dtype] if tolerance is None else tolerance
    if not sampler.greedy:
        # A token may sit on either side of a top-k or top-p boundary: within the tolerance of the weakest kept logit it
        # counts as kept.
        weakest = logits[sampler.kept(logits)].min()
        scores = scores.masked_fill(logits < weakest - tolerance, -torch.inf)
        tolerance = tolerance / sampler.temperature
    gaps = [float(scores.max() - scores[token]) for token in (ids[at], reference[at])]
    detail |= {"token": ids[at], "reference_token": reference[at], "gaps": gaps, "tolerance": tolerance}
    return Verdict("near_tie" if max(gaps) <= tolerance else "wrong", detail)
