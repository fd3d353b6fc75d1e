"""The verdict on one output: `exact`, `near_tie` or `wrong` against plain decoding of the same
target.

If a target's rows do not depend on the other rows (`verify/rows.py`), and in float32 and float64,
only the same ids pass. Elsewhere a forward over 65 rows and one over a single row round
differently, so two close tokens can swap, and the texts differ from there on. Then one
teacher-forced pass over the prompt and the method's own ids judges every emitted token in its own
context: `near_tie` if each is within a tolerance, measured before the run, of the maximum of the
deciding score (logits; logits / T + g at T > 0, which is log p + g up to a constant), and the text
ends where the stop rule ends it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dartree_exp.engines.target import Target
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
        (i for i, (a, b) in enumerate(zip(ids, reference, strict=False)) if a != b),
        min(len(ids), len(reference)),
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
        tolerance: in logits, how much two computations of one row may differ; 0: only equal ids
            pass.
    """
    at = compare_ids(ids, reference)
    if at is None:
        return Verdict("exact")
    detail: dict[str, Any] = {"index": at, "position": len(prompt_ids) + at, "tolerance": tolerance}
    detail |= {"token": ids[at] if at < len(ids) else None}
    detail |= {"reference_token": reference[at] if at < len(reference) else None}
    if tolerance == 0:
        return Verdict(
            "wrong",
            detail
            | {"reason": "the ids differ from plain decoding's, and only equal ids pass here"},
        )
    if fault := stop_fault(ids, rule):
        return Verdict("wrong", detail | {"reason": fault})
    allowed = tolerance if sampler.greedy else tolerance / sampler.temperature
    gaps = list(token_gaps(target, prompt_ids, ids, sampler, tolerance))
    flips = [gap for gap in gaps if gap > 0]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if not gaps[worst] <= allowed:
        reason = (
            f"token {worst} is {gaps[worst]:.3g} below the best, beyond the tolerance of "
            f"{allowed:.3g}"
        )
        return Verdict("wrong", detail | {"reason": reason, "worst": worst})
    found = {
        "flips": len(flips),
        "gap_median": median(flips) if flips else 0.0,
        "gap_max": gaps[worst],
    }
    return Verdict("near_tie", detail | found)


def stop_fault(ids: list[int], rule: StopRule) -> str | None:
    """Why `rule` does not end `ids` at its last token; None if it does."""
    answer = Answer(rule)
    emitted = answer.push(ids)
    if emitted < len(ids):
        return f"the text continues after token {emitted - 1} ended it ({answer.finish})"
    return "the text ends although no stop rule ends it" if answer.finish is None else None


def token_gaps(
    target: Target, prompt_ids: list[int], ids: list[int], sampler: Sampler, tolerance: float
) -> Iterator[float]:
    """How far each of `ids` is below the best deciding score in its own context; 0 for the best."""
    cache = target.new_cache(len(prompt_ids) + len(ids))
    rows = target.prefill(prompt_ids, cache).logits
    for first in range(0, len(ids), _CHUNK):
        chunk = ids[first : first + _CHUNK]
        rows = torch.cat([rows[-1:], target.score(chunk, cache)])
        for i, token in enumerate(chunk):
            yield token_gap(
                rows[i].double(), token, len(prompt_ids) + first + i, sampler, tolerance
            )


def token_gap(
    logits: Tensor, token: int, position: int, sampler: Sampler, tolerance: float
) -> float:
    """Best deciding score minus the token's, over float64 logits [V]; infinite for a token that
    filters exclude.

    A token at the boundary of top-k or top-p may be kept in one computation of the row and dropped
    in another: it is allowed, and the others are not compared with it.
    """
    scores = sampler.scores(logits, position)
    if sampler.greedy:
        return float(scores.max() - scores[token])
    allowed, surely = at_most_and_at_least_kept(logits, sampler, tolerance)
    if not allowed[token]:
        return float("inf")
    return max(0.0, float(scores.masked_fill(~surely, -torch.inf).max() - scores[token]))


def at_most_and_at_least_kept(
    logits: Tensor, sampler: Sampler, tolerance: float
) -> tuple[Tensor, Tensor]:
    """bool [V] twice: tokens that filters may keep, and tokens they surely keep, if each logit may
    change by the tolerance.

    Top-k: a logit moves against the k-th by at most that. Top-p: the odds of the mass before a
    token change by a factor of at most exp(2 * tolerance / T), since each of its two parts changes
    by exp(tolerance / T).
    """
    first = allowed = surely = torch.ones_like(logits, dtype=torch.bool)
    if 0 < sampler.top_k < logits.numel():
        weakest = logits.topk(sampler.top_k).values[-1]
        allowed, first, surely = (
            logits >= weakest + shift for shift in (-tolerance, 0.0, tolerance)
        )
    if sampler.top_p < 1.0:
        scaled = (logits / sampler.temperature).masked_fill(~first, -torch.inf)
        probs, order = scaled.softmax(-1).sort(descending=True, stable=True)
        before = probs.cumsum(-1) - probs
        odds = before / (1 - before).clamp_min(1e-300)
        factor = math.exp(min(2 * tolerance / sampler.temperature, 300.0))
        low, high = odds / factor, odds * factor
        empty = torch.zeros_like(allowed)
        allowed = allowed & empty.index_put((order,), low / (1 + low) < sampler.top_p)
        surely = surely & empty.index_put((order,), high / (1 + high) < sampler.top_p)
    return allowed, surely
