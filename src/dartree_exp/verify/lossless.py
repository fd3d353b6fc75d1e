"""The verdict on one output: `exact`, `near_tie` or `wrong` against plain decoding of the same target.

Where a target's rows do not depend on their company (`verify/rows.py`), and in float32 and float64, only the same ids pass.
Elsewhere a forward over 65 rows and one over a single row round differently, so that two close tokens can swap, and from
there the texts part. Then one teacher-forced pass over the prompt and the method's own ids judges every emitted token in
its own context: `near_tie` if each lies within a tolerance, measured before the run, of the maximum of the deciding score
(logits; logits / T + g at T > 0, which is log p + g up to a constant), and the stop rule ends the text where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dartree_exp.models.target import Target
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import Answer, StopRule

_CHUNK = 64  # rows of logits at a time


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
    rule: StopRule,
    tolerance: float,
) -> Verdict:
    """Judge `ids` against plain decoding's `reference` of the same prompt, sampler and stop rule.

    Args:
        tolerance: in logits, what two computations of one row may differ by; 0: only equal ids pass.
    """
    at = compare_ids(ids, reference)
    if at is None:
        return Verdict("exact")
    detail: dict[str, Any] = {"index": at, "position": len(prompt_ids) + at, "tolerance": tolerance}
    detail |= {"token": ids[at] if at < len(ids) else None}
    detail |= {"reference_token": reference[at] if at < len(reference) else None}
    if tolerance == 0:
        return Verdict("wrong", detail | {"reason": "another id than plain decoding's, where only equal ids pass"})
    if fault := stop_fault(ids, rule):
        return Verdict("wrong", detail | {"reason": fault})
    allowed = tolerance if sampler.greedy else tolerance / sampler.temperature
    gaps = list(token_gaps(target, prompt_ids, ids, sampler, tolerance))
    flips = [gap for gap in gaps if gap > 0]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if not gaps[worst] <= allowed:
        reason = f"token {worst} lies {gaps[worst]:.3g} below the best, beyond the tolerance of {allowed:.3g}"
        return Verdict("wrong", detail | {"reason": reason, "worst": worst})
    found = {"flips": len(flips), "gap_median": median(flips) if flips else 0.0, "gap_max": gaps[worst]}
    return Verdict("near_tie", detail | found)


def stop_fault(ids: list[int], rule: StopRule) -> str | None:
    """What is wrong with where `ids` ends under `rule`; None where it ends as it must."""
    answer = Answer(rule)
    emitted = answer.push(ids)
    if emitted < len(ids):
        return f"the text goes on after token {emitted - 1} ended it ({answer.finish})"
    return "the text ends where no rule ends it" if answer.finish is None else None


def token_gaps(
    target: Target, prompt_ids: list[int], ids: list[int], sampler: Sampler, tolerance: float
) -> Iterator[float]:
    """How far each of `ids` lies below the best deciding score in its own context; 0: it is the best."""
    cache = target.new_cache(len(prompt_ids) + len(ids))
    rows = target.prefill(prompt_ids, cache).logits
    for first in range(0, len(ids), _CHUNK):
        chunk = ids[first : first + _CHUNK]
        rows = torch.cat([rows[-1:], target.score(chunk, cache)])
        for i, token in enumerate(chunk):
            yield token_gap(rows[i].double(), token, len(prompt_ids) + first + i, sampler, tolerance)


def token_gap(logits: Tensor, token: int, position: int, sampler: Sampler, tolerance: float) -> float:
    """Best deciding score less the token's, over float64 logits [V]; infinite for a token that filters exclude.

    A logit within the tolerance of a top-k or top-p boundary may lie on either side of it: such a token is allowed, and
    needs not be beaten.
    """
    scores = sampler.scores(logits, position)
    if sampler.greedy:
        return float(scores.max() - scores[token])
    kept = sampler.kept(logits)
    if bool(kept.all()):
        return float(scores.max() - scores[token])
    weakest = logits[kept].min()
    if logits[token] < weakest - tolerance:
        return float("inf")
    surely = scores.masked_fill(logits < weakest + tolerance, -torch.inf)
    return max(0.0, float(surely.max() - scores[token]))
