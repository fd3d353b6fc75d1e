"""Intervals have the right coverage, are paired by prompt, and resample prompts, not turns."""

import numpy as np
import pytest

from dartree_exp.metrics import stats
from dartree_exp.metrics.measures import METRICS
from dartree_exp.metrics.stats import (
    LEAST_PAIRS,
    NO,
    NOT_COMPARABLE,
    TOO_FEW,
    YES,
    Estimate,
    best_of,
    bootstrap,
    estimate,
    paired_difference,
)
from sample_records import sample

QUOTIENT = METRICS["tau_macro"].value


def mean_table(values):
    return np.stack([values, np.ones(len(values))], axis=1)


def run_of(taus, **options):
    """One prompt per tau, all its rounds of that length."""
    return [sample(f"p{i}", [int(t)] * 2, **options) for i, t in enumerate(taus)]


def test_interval_covers_the_mean_about_95_times_in_100():
    rng = np.random.default_rng(1)
    results = [bootstrap(mean_table(rng.exponential(2.0, 40)), QUOTIENT) for _ in range(300)]
    covered = np.mean([e.low <= 2.0 <= e.high for e in results])
    assert 0.90 <= covered <= 0.97  # a percentile interval of a skewed law is a little short
    assert np.mean([e.value for e in results]) == pytest.approx(2.0, abs=0.1)


def test_interval_agrees_with_the_normal_one_for_a_plain_mean():
    values = np.random.default_rng(2).normal(5, 1, 200)
    e = bootstrap(mean_table(values), QUOTIENT)
    half = 1.96 * values.std() / np.sqrt(200)
    assert e.value == pytest.approx(values.mean())
    assert (e.low, e.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_the_seed_makes_it_repeatable():
    values = np.random.default_rng(3).normal(5, 1, 30)
    first = bootstrap(mean_table(values), QUOTIENT)
    stats._weights.cache_clear()
    assert bootstrap(mean_table(values), QUOTIENT) == first


def test_no_interval_below_two_prompts():
    assert estimate([], "tau_macro") == Estimate(None)
    assert estimate(run_of([3]), "tau_macro") == Estimate(3.0, None, None)
    # Many turns of one prompt are still one prompt.
    assert estimate([sample("a", [t], turn=t) for t in range(1, 9)], "tau_macro").low is None


def test_turns_of_a_prompt_are_drawn_together():
    rng = np.random.default_rng(4)
    dialogues = [
        sample(f"p{i}", [int(t)], turn=k)
        for i, t in enumerate(rng.integers(1, 17, 20))
        for k in range(4)
    ]
    split = [sample(f"{s.id}-{s.turn}", s.acceptance_lengths) for s in dialogues]
    together, apart = estimate(dialogues, "tau_macro"), estimate(split, "tau_macro")
    assert together.value == apart.value
    assert (together.high - together.low) > 1.6 * (
        apart.high - apart.low
    )  # four equal turns: twice as wide


def test_pairing_sees_a_small_steady_difference_that_separate_intervals_hide():
    taus = np.random.default_rng(5).integers(2, 14, 30)
    better, worse = run_of(taus + 1), run_of(taus)
    a, b = estimate(better, "tau_macro"), estimate(worse, "tau_macro")
    assert b.high > a.low  # the separate intervals overlap
    paired = paired_difference(better, worse, "tau_macro")
    assert paired.estimate.value == pytest.approx(1) and paired.estimate.low == pytest.approx(1)
    assert paired.separable == YES and paired.n == 30
    back = paired_difference(worse, better, "tau_macro")
    assert back.estimate.value == pytest.approx(-1) and back.separable == YES


def test_no_difference_is_not_separable():
    rng = np.random.default_rng(6)
    a, b = run_of(rng.integers(2, 14, 30)), run_of(rng.integers(2, 14, 30))
    assert paired_difference(a, b, "tau_macro").separable == NO
    same = paired_difference(a, a, "tau_macro")
    assert same.estimate == Estimate(0.0, 0.0, 0.0) and same.separable == NO
    assert paired_difference(a, a, "tau_macro", as_ratio=True).estimate == Estimate(1.0, 1.0, 1.0)


def test_ratio_of_speedups_and_of_taus():
    slow, fast = run_of([4, 5, 6], seconds=2.0), run_of([8, 10, 12], seconds=2.0)
    assert paired_difference(
        fast, slow, "tau_macro", as_ratio=True
    ).estimate.value == pytest.approx(2)
    assert paired_difference(fast, slow, "speedup", as_ratio=True).estimate.value == pytest.approx(
        1
    )


def test_only_shared_prompts_with_the_same_ids_enter():
    a = [sample("p", [2]), sample("q", [4]), sample("r", [6]), sample("only a", [16])]
    b = [
        sample("q", [3]),
        sample("p", [1]),
        sample("r", [1], prompt_sha256="another template"),
        sample("x", [1]),
    ]
    paired = paired_difference(a, b, "tau_macro")
    assert paired.n == 2 and paired.mismatched == 1
    assert paired.estimate.value == pytest.approx(1)
    nothing = paired_difference(a, [sample("x", [1])], "tau_macro")
    assert nothing.n == 0 and nothing.estimate == Estimate(None) and nothing.separable == TOO_FEW


def test_a_prompt_that_failed_in_one_run_leaves_both():
    a = [sample("p", [2]), sample("q", [10])]
    b = [sample("p", [1]), sample("q", [3], error={"type": "NonFiniteLogitsError"}, verdict=None)]
    assert paired_difference(a, b, "tau_macro").estimate.value == pytest.approx(1)


def test_repeats_weigh_no_more_than_one():
    once = [sample("p", [2], seconds=1.0), sample("q", [4], seconds=1.0)]
    thrice = [
        sample(s.id, s.acceptance_lengths, seconds=1.0, repeat=r) for s in once for r in range(3)
    ]
    paired = paired_difference(thrice, once, "tau_macro")
    assert paired.n == 2 and paired.estimate == Estimate(0.0, 0.0, 0.0)


def test_resamples_without_any_round_are_left_out():
    run = [sample("a", [4]), sample("b", [6]), *(sample(f"c{i}", [], emitted=1) for i in range(5))]
    assert estimate(run, "tau_macro").low == 4
    table = np.array([[3.0, 1.0], [0.0, 0.0]])
    assert bootstrap(table, QUOTIENT) == Estimate(3.0, 3.0, 3.0)


def test_the_best_is_better_than_every_other_one_or_there_is_none():
    taus = np.random.default_rng(7).integers(2, 14, 30)
    low, high = run_of(taus), run_of(taus + 1)
    assert best_of([low, high, run_of(taus - 1)], "tau_macro") == 1
    # Each is better on half of the prompts: none is the best.
    rival = run_of(taus + 1 + np.tile([-1, 1], 15))
    assert best_of([low, high, rival], "tau_macro") is None
    assert best_of([high, high], "tau_macro") is None
    assert best_of([high], "tau_macro") is None and best_of([], "tau_macro") is None


def test_plain_decoding_has_no_tau_and_takes_no_best_away():
    taus = np.random.default_rng(7).integers(2, 14, 30)
    plain = [sample(f"p{i}", [], emitted=9) for i in range(30)]
    assert best_of([plain, run_of(taus), run_of(taus + 1)], "tau_macro") == 2


def test_a_handful_of_prompts_makes_no_best():
    taus = np.arange(2, 2 + LEAST_PAIRS)
    assert best_of([run_of(taus), run_of(taus + 3)], "tau_macro") == 1
    assert best_of([run_of(taus[1:]), run_of(taus[1:] + 3)], "tau_macro") is None


@pytest.mark.parametrize(("prompts", "answer"), [(LEAST_PAIRS - 1, TOO_FEW), (LEAST_PAIRS, YES)])
def test_separable_needs_as_many_prompts_as_a_best(prompts, answer):
    taus = np.arange(2, 2 + prompts)
    paired = paired_difference(run_of(taus + 3), run_of(taus), "tau_macro")
    assert paired.n == prompts and paired.estimate.low > 0 and paired.separable == answer


def test_eight_copies_of_one_prompt_are_one_prompt():
    taus = np.arange(2, 10)
    low, high = (run_of(taus + shift, prompt_sha256="one prompt") for shift in (0, 3))
    assert estimate(high, "tau_macro") == Estimate(8.5, None, None)
    paired = paired_difference(high, low, "tau_macro")
    assert (paired.n, paired.estimate, paired.separable) == (1, Estimate(3.0, None, None), TOO_FEW)
    assert best_of([high, low], "tau_macro") is None
    # Copies count as one prompt besides the seven others.
    mixed = [
        *run_of(np.full(7, 4)),
        *(sample(f"copy {i}", [9], prompt_sha256="one prompt") for i in range(8)),
    ]
    apart = [*run_of(np.full(7, 4)), *(sample(f"copy {i}", [9]) for i in range(8))]
    together, single = estimate(mixed, "tau_macro"), estimate(apart, "tau_macro")
    assert (
        together.value == single.value and together.high - together.low > single.high - single.low
    )


def test_times_that_may_not_be_compared_are_neither_separable_nor_the_best():
    taus = np.arange(2, 12)
    slow, fast = run_of(taus, seconds=2.0), run_of(taus, seconds=1.0)
    paired = paired_difference(fast, slow, "speedup", comparable=False)
    assert paired.estimate.low > 0 and paired.separable == NOT_COMPARABLE
    assert best_of([fast, slow], "speedup") == 0
    assert best_of([fast, slow], "speedup", comparable=False) is None
