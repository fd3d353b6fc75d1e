"""Metrics against numbers computed by hand and published records of another decoder."""

import json
import math

import pytest

from dartree_exp.metrics.measures import (
    METRICS,
    acceptance_histogram,
    counts,
    is_degenerate,
    point,
    prompt_sums,
    prompt_units,
    spread,
    stage_share,
    survival,
)
from dartree_exp.metrics.stats import Estimate, spread_estimate
from dartree_exp.metrics.summary import summarise
from dartree_exp.records import RecordError
from sample_records import sample

RUN = [
    sample("a", [2, 4], seconds=1.0, ar_seconds=6.0),
    sample("b", [9], emitted=8, seconds=1.0, ar_seconds=2.0),
]


def test_the_four_taus_differ_and_are_each_right():
    assert point(RUN, "tau_macro") == (3 + 9) / 2
    assert point(RUN, "tau_micro") == 15 / 3
    assert point(RUN, "drafts_per_round") == 12 / 3
    assert point(RUN, "emitted_per_round") == (6 + 7) / 3


def test_verified_drafts_are_counted_where_they_are_recorded():
    run = [sample("a", [2, 4], verified=10), sample("b", [9], verified=2)]
    assert point(run, "verified_per_round") == 12 / 3
    assert point([*run, sample("c", [1, 1])], "verified_per_round") == 12 / 3  # an older record
    assert point(RUN, "verified_per_round") is None
    with pytest.raises(RecordError, match="negative"):
        sample("a", [2], verified=-1)


def test_the_spread_is_that_of_the_categories_taus():
    run = [
        *(sample("a", [2, 4]), sample("b", [5])),  # math: 3 and 5
        sample("c", [1], category="code"),
        sample("d", [7], category="chat"),
    ]
    mean = (4 + 1 + 7) / 3
    by_hand = math.sqrt(((4 - mean) ** 2 + (1 - mean) ** 2 + (7 - mean) ** 2) / 3)
    metric = spread(["math", "code", "chat"])
    assert point(run, metric) == pytest.approx(by_hand)
    assert point(run[:3], metric) is None  # a category without a prompt
    assert point(run[:2], spread(["math"])) == 0
    assert spread_estimate(run, ["math", "code", "chat"]) == Estimate(point(run, metric))
    more = [sample(f"{c}{i}", [i], category=c) for c in ("code", "chat") for i in (2, 4)]
    found = spread_estimate([*run, *more], ["math", "code", "chat"])
    assert found.low < found.value < found.high


def test_both_speedups():
    # emitted: a 7, b 8. Headline: seconds per token after the first; ids are the same, so it is the
    # plain time ratio.
    assert point(RUN, "speedup") == pytest.approx(8 / 2)
    assert point(RUN, "speedup_macro") == pytest.approx((6 / 7 + 2 / 8) / (1 / 7 + 1 / 8))
    assert point(RUN, "tokens_per_second") == pytest.approx(13 / 2)
    assert point(RUN, "ar_tokens_per_second") == pytest.approx(13 / 8)


def test_the_headline_counts_tokens_if_a_near_tie_changed_the_length():
    run = [
        sample(
            "a",
            [5],
            seconds=1.0,
            ar={"emitted": 11, "prefill": 0, "decode": 4.0},
            verdict="near_tie",
        )
    ]
    assert point(run, "speedup") == pytest.approx((4 / 10) / (1 / 5))


def test_tau_without_rounds_is_none_and_the_turn_is_left_out():
    one_token = sample("c", [], emitted=1)
    assert point([one_token], "tau_macro") is None
    assert point([one_token, *RUN], "tau_macro") == 6
    assert point([one_token], "speedup") is None
    assert point([], "tau_micro") is None


def test_turns_count_each_in_macro_tau():
    turns = [sample("a", [2]), sample("a", [4, 4], turn=1), sample("b", [9])]
    assert point(turns, "tau_macro") == (2 + 4 + 9) / 3
    assert counts(turns)["n"] == 2 and counts(turns)["turns"] == 3


def test_failures_and_fallbacks_are_counted_not_mixed_in():
    failed = sample(
        "x", [50], error={"type": "NonFiniteLogitsError", "message": "draft logits"}, verdict=None
    )
    fallback = sample(
        "y", [], emitted=5, fallback="prompt longer than the drafter's 16", seconds=4.0
    )
    run = [*RUN, failed, fallback]
    for name in ("tau_macro", "tau_micro", "drafts_per_round", "emitted_per_round"):
        assert point(run, name) == point(RUN, name)
    assert point(run, "speedup") == pytest.approx(
        (12 / 17) / (6 / 17)
    )  # the user waits for a fallback: it counts
    assert point(run, stage_share("draft")) == point(RUN, stage_share("draft")) == 0.25
    assert counts(run) == {
        "n": 3,
        "copies": 0,
        "turns": 3,
        "failed": 1,
        "fallbacks": 1,
        "degenerate": 0,
        "capped": 0,
        "verdicts": {"exact": 3, "near_tie": 0, "wrong": 0, "unjudged": 0},
    }


def test_copies_of_a_prompt_count_once():
    copies = [sample(f"copy {i}", [2], prompt_sha256="one prompt") for i in range(8)]
    numbers = counts([*copies, sample("other", [4])])
    assert (numbers["n"], numbers["copies"], numbers["turns"]) == (2, 7, 9)
    assert set(prompt_sums(copies, METRICS["tau_macro"])) == {"one prompt"}


def test_copies_of_a_dialogue_are_one_prompt_even_where_its_first_turn_failed_in_one():
    failed = {"error": {"type": "NonFiniteLogitsError"}, "verdict": None}
    first = [sample("a", [2], prompt_sha256="x"), sample("a", [2], turn=1, prompt_sha256="y")]
    second = [
        sample("b", [2], prompt_sha256="x", **failed),
        sample("b", [2], turn=1, prompt_sha256="y"),
    ]
    assert prompt_units(second + first) == {"a": "x", "b": "x"} and counts(first + second)["n"] == 1


def test_milliseconds_a_round():
    assert point(RUN, "ms_per_round") == pytest.approx(2000 / 3)


def test_histogram_and_survival():
    assert acceptance_histogram(RUN) == {2: 1, 4: 1, 9: 1}
    assert survival({1: 1, 3: 3}) == [1.0, 0.75, 0.75]
    assert survival({}) == []


def test_summary_has_the_agreed_keys_and_no_nan():
    run = [
        *RUN,
        sample("c", [], emitted=1, category="chat"),
        sample("d", [3], finish="length", degenerate=True),
    ]
    summary = summarise(run, "dartree_pruned")
    text = json.dumps(summary, allow_nan=False)
    assert json.loads(text) == summary
    agreed = {
        "method",
        "n",
        "tau_macro",
        "tau_micro",
        "drafts_per_round",
        "emitted_per_round",
        "speedup",
    }
    assert agreed | {"speedup_macro", "stages", "verdicts", "by_category"} <= set(summary)
    assert summary["method"] == "dartree_pruned" and summary["n"] == 4
    assert summary["verdicts"] == {"exact": 4, "near_tie": 0, "wrong": 0, "unjudged": 0}
    assert summary["degenerate"] == summary["capped"] == 1
    assert set(summary["stages"]) == {"draft", "build", "mask", "verify", "commit", "other"}
    assert sum(stage["value"] for stage in summary["stages"].values()) == pytest.approx(1)
    low, value, high = (summary["tau_macro"][key] for key in ("low", "value", "high"))
    assert value == 5 and low < value < high
    chat = summary["by_category"]["chat"]
    assert chat["n"] == 1 and chat["tau_macro"] == {"value": None, "low": None, "high": None}
    assert list(summary["by_category"]) == ["math", "chat"]
    assert set(METRICS) <= set(summary["definitions"])


def test_summary_of_nothing():
    summary = summarise([], "m")
    assert (
        summary["n"] == 0 and summary["tau_macro"]["value"] is None and summary["by_category"] == {}
    )
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([7] * 32, True),
        ([7] * 31, False),
        ([*range(100), *([1, 2, 3] * 11), *range(200, 250)], True),
        ([*range(40)] * 2, False),
        ([*range(40)] * 3, True),
        ([t for i in range(30) for t in (1, 2, 3, 4, 5, 6, 100 + i)], False),
        (
            [t for i in range(20) for t in (*range(14), 100 + i)],
            True,
        ),  # a list whose entries differ in a number
        ([t for i in range(4) for t in (1, 2, 3, 4, 100 + i)], False),
        ([], False),
    ],
)
def test_degenerate_outputs(ids, loops):
    assert is_degenerate(ids) is loops


PUBLISHED = {  # facts/dartree.md 6.7: Qwen3-4B Domino chain, macro and micro tau
    "T0.0": {
        "gsm8k": (10.232, 9.735),
        "math500": (9.078, 8.467),
        "aime25": (7.466, 7.131),
        "humaneval": (7.046, 6.869),
        "mbpp": (7.376, 6.878),
        "livecodebench": (6.986, 7.187),
        "mt-bench": (5.233, 4.113),
        "alpaca": (3.903, 3.695),
    },
    "T1.0": {
        "gsm8k": (8.343, 7.862),
        "math500": (7.256, 6.205),
        "aime25": (4.947, 4.452),
        "humaneval": (6.295, 6.026),
        "mbpp": (6.310, 5.704),
        "livecodebench": (6.331, 5.227),
        "mt-bench": (4.583, 3.367),
        "alpaca": (3.534, 3.120),
    },
}


@pytest.mark.parametrize(
    ("temperature", "dataset"), [(t, name) for t, cells in PUBLISHED.items() for name in cells]
)
def test_macro_and_micro_tau_of_the_published_domino_records(shared_data, temperature, dataset):
    path = shared_data / "domino_records" / f"{temperature}_graph_{dataset}.jsonl"
    run = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for turn, lengths in enumerate(record["choices"][1]["acceptance_lengths"]):
            run.append(sample(str(record["question_id"]), lengths, turn=turn))
    macro, micro = PUBLISHED[temperature][dataset]
    assert round(point(run, "tau_macro"), 3) == macro
    assert round(point(run, "tau_micro"), 3) == micro
    summary = summarise(run, "domino")
    assert summary["tau_macro"]["low"] < macro < summary["tau_macro"]["high"]
    assert math.isclose(summary["tau_macro"]["value"], macro, abs_tol=5e-4)
