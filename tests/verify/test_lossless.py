"""The verdict judges every emitted token in its own context, and where the text ends."""

from functools import cache

import pytest
import torch

import dartree_exp.verify.lossless as lossless
from dartree_exp.decode import autoregress
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.lossless import (
    at_most_and_at_least_kept,
    judge,
    stop_fault,
    token_gap,
    token_gaps,
)
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

PROMPT = [4, 9, 33, 17, 60, 3, 21]
CAP = 24
RULE = StopRule(CAP)


@cache
def target():
    return toy_target("llama", torch.float32, seed=1, layers=2)


def plain(sampler, prompt=PROMPT, cap=CAP):
    return autoregress(target(), list(prompt), sampler, StopRule(cap), StageClock()).ids


def swapped(sampler, at):
    """Plain decoding's ids but for the second best token at index `at`, and that token's gap."""
    ids = plain(sampler)
    context = PROMPT + ids[:at]
    cache_ = target().new_cache(len(context))
    scores = sampler.scores(target().prefill(context, cache_).logits[-1], len(context))
    best, second = scores.topk(2).indices.tolist()
    assert best == ids[at]
    head = [*ids[:at], second]
    rest = plain(sampler, PROMPT + head, CAP - len(head))
    return head + rest, float(scores[best] - scores[second])


SAMPLERS = [Sampler(), Sampler(0.7, seed=4, sample_id="b")]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["greedy", "T=0.7"])
def test_one_flip_is_a_near_tie_up_to_the_tolerance_and_wrong_beyond(sampler):
    ids, gap = swapped(sampler, 5)
    reference, unit = plain(sampler), (1.0 if sampler.greedy else sampler.temperature)
    near = judge(target(), PROMPT, ids, reference, sampler, RULE, tolerance=1.01 * gap * unit)
    assert near.verdict == "near_tie"
    assert (near.detail["index"], near.detail["flips"]) == (5, 1)
    assert near.detail["gap_max"] == pytest.approx(gap, rel=1e-3) == near.detail["gap_median"]
    # The control: a verifier that takes the second best token once.
    wrong = judge(target(), PROMPT, ids, reference, sampler, RULE, tolerance=0.99 * gap * unit)
    assert wrong.verdict == "wrong" and wrong.detail["worst"] == 5


def test_a_wrong_token_behind_a_near_tie_is_wrong():
    """Judged at the first difference alone it would pass."""
    ids, gap = swapped(Sampler(), 5)
    worst = [*ids[:12], _worst_token(ids[:12])]
    worst += plain(Sampler(), PROMPT + worst, CAP - len(worst))
    verdict = judge(
        target(), PROMPT, worst, plain(Sampler()), Sampler(), RULE, tolerance=1.01 * gap
    )
    assert verdict.verdict == "wrong" and verdict.detail["worst"] == 12


def _worst_token(ids):
    cache_ = target().new_cache(len(PROMPT) + len(ids))
    return int(target().prefill(PROMPT + ids, cache_).logits[-1].argmin())


def test_without_a_tolerance_only_equal_ids_pass():
    ids, _ = swapped(Sampler(), 5)
    reference = plain(Sampler())
    assert (
        judge(target(), PROMPT, reference, list(reference), Sampler(), RULE, 0.0).verdict == "exact"
    )
    verdict = judge(target(), PROMPT, ids, reference, Sampler(), RULE, 0.0)
    assert verdict.verdict == "wrong" and verdict.detail["index"] == 5


def test_a_dropped_stop_and_an_early_end_are_wrong():
    ids = plain(Sampler())
    rule = StopRule(CAP, eos_ids=frozenset({ids[9]}))
    first = ids.index(ids[9])
    ended = ids[: first + 1]
    late = judge(target(), PROMPT, ids, ended, Sampler(), rule, 1e9)
    assert late.verdict == "wrong" and "continues" in late.detail["reason"]
    early = judge(target(), PROMPT, ended[:-1], ended, Sampler(), rule, 1e9)
    assert early.verdict == "wrong" and "no stop rule ends it" in early.detail["reason"]
    assert stop_fault(ended, rule) is None and stop_fault(ids, RULE) is None


def test_gaps_of_plain_decoding_are_zero_in_any_chunk(monkeypatch):
    for sampler in SAMPLERS:
        ids = plain(sampler)
        for size in (64, 5, 1):
            monkeypatch.setattr(lossless, "_CHUNK", size)
            gaps = list(token_gaps(target(), PROMPT, ids, sampler, 0.1))
            assert len(gaps) == CAP and max(gaps) < 1e-4


def test_tokens_at_a_filters_boundary():
    """top-k = 2 with the third 0.01 below the second: either may be the target's draw; the fourth
    never is.
    """
    logits = torch.tensor([3.0, 2.0, 1.99, 0.0], dtype=torch.float64)
    for seed in range(40):
        sampler = Sampler(1.0, top_k=2, seed=seed)
        scores = sampler.scores(logits, 7)
        gaps = [token_gap(logits, token, 7, sampler, tolerance=0.1) for token in range(4)]
        assert gaps[3] == float("inf")
        for token in range(3):
            # The one certain candidate must be beaten; the two at the boundary need not be.
            assert gaps[token] == pytest.approx(max(0.0, float(scores[0] - scores[token])))


def test_without_filters_every_token_must_be_beaten():
    logits = torch.tensor([3.0, 2.0, 2.95], dtype=torch.float64)
    sampler = Sampler(1.0, seed=0)
    scores = sampler.scores(logits, 7)
    assert [token_gap(logits, t, 7, sampler, 5.0) for t in range(3)] == pytest.approx(
        (scores.max() - scores).tolist()
    )


def test_a_nucleus_with_a_flat_tail_moves_by_mass():
    """1,000 tokens behind a strong one: rounding moves the end of the nucleus past many of them."""
    logits = torch.cat([torch.tensor([9.5]), torch.linspace(3.0, 0.0, 1000)]).double()
    sampler = Sampler(1.0, top_p=0.8, seed=0)
    last = int(sampler.kept(logits).nonzero().max())
    shifted = logits.clone()
    shifted[0] -= 0.05
    shifted[1:] += 0.05
    beyond = int(sampler.kept(shifted).nonzero().max())
    assert logits[last] - logits[beyond] > 0.05, "it must lie further off than the tolerance"
    assert token_gap(logits, beyond, 7, sampler, tolerance=0.05) < float("inf")
    assert token_gap(logits, 1000, 7, sampler, tolerance=0.05) == float("inf")
    allowed, surely = at_most_and_at_least_kept(logits, sampler, 0.05)
    assert (surely <= sampler.kept(logits)).all() and (sampler.kept(logits) <= allowed).all()
    exactly = at_most_and_at_least_kept(logits, sampler, 0.0)
    assert all(torch.equal(side, sampler.kept(logits)) for side in exactly)
