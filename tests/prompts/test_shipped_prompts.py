"""The shipped prompts: number, version, and no training prompts among them."""

import gzip
import hashlib
import json
import re
from collections import Counter
from importlib.resources import files

import pytest
from benchmark_support import benchmark

from dartree_exp.prompts import load_prompts

# A change of a file is a new version: raise `version` in conf/benchmark/NAME.yaml, then this pair.
PINNED = {
    "mini": ("1", "75f6eb3326d2fe3b8f7f3da01fb0ecfa472da888c1eae4380f71486a09d0c45f"),
    "creative": ("1", "28b6db507b313ac92300d61d892cc48b1c7adc85d699d4a56469f9519b9085cc"),
}
CATEGORIES = {
    "mini": dict.fromkeys(("math", "code", "chat"), 16),
    "creative": dict.fromkeys(("story", "poem", "dialogue", "other"), 6),
}
SHIPPED = pytest.mark.parametrize("name", list(PINNED))


def normalised(text):
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


@SHIPPED
def test_version_names_the_content(name):
    content = (files("dartree_exp.prompts") / f"{name}.jsonl").read_bytes()
    assert (benchmark(name).version, hashlib.sha256(content).hexdigest()) == PINNED[name]


@SHIPPED
def test_equally_many_of_each_category_all_different(name):
    prompts, total = load_prompts(benchmark(name)), sum(CATEGORIES[name].values())
    assert Counter(prompt.category for prompt in prompts) == CATEGORIES[name]
    assert [prompt.id for prompt in prompts] == [f"{name}/{i}" for i in range(total)]
    assert len({normalised(prompt.turns[0]) for prompt in prompts}) == total
    assert all((len(p.turns), p.benchmark, p.version) == (1, name, "1") for p in prompts)
    assert all(p.turns[0].endswith("\\boxed{}.") == (p.category == "math") for p in prompts)


def test_no_training_prompt_is_among_them(shared_data):
    mine = {
        normalised(turn)
        for name in PINNED
        for prompt in load_prompts(benchmark(name))
        for turn in prompt.turns
    }
    with gzip.open(
        shared_data / "smollm2_generated" / "greedy_192.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        training = [json.loads(line)["prompt"] for line in lines]
    assert len(training) > 9000
    assert not mine & {normalised(prompt) for prompt in training}
    planted = training[17].upper() + " !"
    assert normalised(planted) in {
        normalised(prompt) for prompt in training
    }  # control: a disguised copy is caught


@pytest.mark.parametrize("limit", [3, 6, 7, 48, 99])
def test_a_limit_spreads_over_the_categories(limit):
    prompts = load_prompts(benchmark("mini", limit=limit))
    counts = Counter(prompt.category for prompt in prompts)
    assert len(prompts) == min(limit, 48)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({prompt.id for prompt in prompts}) == len(prompts)


def test_a_limit_is_a_seeded_sample_not_the_head():
    first = [p.id for p in load_prompts(benchmark("mini", limit=6))]
    assert first == [p.id for p in load_prompts(benchmark("mini", limit=6))]
    assert first == [p.id for p in load_prompts(benchmark("mini", limit=12))][:6]
    assert first != [p.id for p in load_prompts(benchmark("mini", limit=6, seed=1))]
    assert set(first) != {f"mini/{i}" for i in range(6)}


def test_categories():
    prompts = load_prompts(benchmark("mini", categories=["math"]))
    everything = [p for p in load_prompts(benchmark("mini")) if p.category == "math"]
    assert prompts == everything
