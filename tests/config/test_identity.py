"""The hash covers everything that a result depends on, and nothing else."""

import copy
from dataclasses import asdict
from operator import attrgetter
from typing import Any

import pytest

from dartree_exp.config import Config, compose, config_hash
from dartree_exp.config.knobs import knobs
from dartree_exp.config.methods import method_name
from dartree_exp.config.unread import unread
from dartree_exp.records.files import HASH_DIGITS
from dartree_exp.trees.spec import TREES

NOT_RESULTS = (
    "parts",
    "tree.draft_sampling",
    "tree.paths",
    "verify.threshold",
    "verify.alpha",
    "tree.draft_temperature",
    "output",
    "proof_prompts",
    "force",
    "method",
    "tracker.",
    "record.",
    "sweep.",
    "benchmark.study_",
    "model.drafters",
    "budget.threshold",
    "budget.alpha",
    "budget.rate",
    "drafter.num_drafts",
    "tree.expansion",
    "tree.latent",
    "tree.coupled",
    "drafter.children",
    "drafter.probes",
    "drafter.longest",
    "drafter.shortest",
)
CHOICES = ("budget.name",)  # an unknown name has no hash


@pytest.fixture(scope="module")
def config() -> Config:
    return compose()


def changed(config: Config, key: str) -> Config:
    """The same configuration with another value at `key`."""
    other = copy.deepcopy(config)
    group, _, name = key.rpartition(".")
    owner: Any = attrgetter(group)(other) if group else other
    value = getattr(owner, name)
    if isinstance(value, bool):
        new: Any = not value
    elif isinstance(value, int | float):
        new = value + 1
    elif isinstance(value, list):
        new = [*value, "x"]
    elif isinstance(value, dict):
        new = {**value, "x": "y"}
    else:
        new = f"{value}x"
    setattr(owner, name, new)
    return other


@pytest.mark.parametrize("key", [key for key, _, _ in knobs()])
def test_every_setting_counts_unless_it_cannot_change_a_result(config: Config, key: str) -> None:
    same = config_hash(changed(config, key)) == config_hash(config) if key not in CHOICES else False
    assert same == key.startswith(NOT_RESULTS)


def test_the_hash_is_short_and_repeatable(config: Config) -> None:
    digits = config_hash(config)
    assert digits == config_hash(copy.deepcopy(config))
    assert len(digits) == HASH_DIGITS and set(digits) <= set("0123456789abcdef")


def test_equal_settings_written_differently_have_one_hash(config: Config) -> None:
    said = [
        "+method=dartree_pruned",
        "tree.budget=auto",
        "budget.name=cost_aware",
        "tree.scoring=conditional",
        "tree.beta=-2e-1",
        "output=elsewhere",
    ]
    assert config_hash(compose(said)) == config_hash(config)


def test_knobs_that_a_tree_does_not_read_do_not_split_runs(config: Config) -> None:
    read = {"pruned": ["width", "beta"], "heap": ["beta"]}
    read |= {tree: ["width"] for tree in ("pool", "frontier", "sampled")}
    for tree in TREES:
        for key, value in (("width", 99), ("beta", -0.5)):
            one, other = copy.deepcopy(config), copy.deepcopy(config)
            one.tree.name = other.tree.name = tree
            setattr(other.tree, key, value)
            assert (config_hash(one) != config_hash(other)) == (key in read.get(tree, ())), (
                tree,
                key,
            )


def test_coupling_counts_if_the_target_samples() -> None:
    plain, coupled = (
        compose(["decoding.temperature=1", f"tree.coupled={on}"]) for on in ("false", "true")
    )
    assert config_hash(plain) != config_hash(coupled)
    assert "tree.coupled" in unread(asdict(compose(["tree.coupled=true"])))
    assert method_name(coupled) == f"{method_name(plain)}+coupled"
    assert method_name(compose(["tree.coupled=true"])) == method_name(compose([]))


def test_draft_sampling_counts_if_a_chain_samples(config: Config) -> None:
    for tree in TREES:
        for temperature in (0.0, 1.0):
            one = copy.deepcopy(config)
            one.tree.name, one.decoding.temperature = tree, temperature
            other = copy.deepcopy(one)
            other.tree.draft_sampling = "release"
            assert (config_hash(one) != config_hash(other)) == (
                tree == "chain" and temperature > 0
            ), (
                tree,
                temperature,
            )


def test_the_confidence_threshold_counts_if_it_is_read(config: Config) -> None:
    for budget in ("fixed", "confidence"):
        low, high = copy.deepcopy(config), copy.deepcopy(config)
        low.budget.name = high.budget.name = budget
        high.budget.threshold = 0.7
        assert (config_hash(low) == config_hash(high)) == (budget == "fixed")
        assert ("budget.threshold" in unread(asdict(high))) == (budget == "fixed")


def test_plain_decoding_is_one_run_whatever_the_tree(config: Config) -> None:
    plain, other = copy.deepcopy(config), copy.deepcopy(config)
    plain.method = other.method = "ar"
    other.tree.budget, other.drafter.head = 16, "none"
    assert config_hash(plain) == config_hash(other) != config_hash(config)
