"""What a run is: a hash over what its result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dartree_exp.budgets.spec import BUDGETS
from dartree_exp.config.methods import AR
from dartree_exp.config.parts import foreign
from dartree_exp.config.schema import Config
from dartree_exp.records.files import hash_of
from dartree_exp.trees.spec import EVERY_TREE, SCORERS, TREES

# Where a result goes, who is told and what it is called do not change it. `drafter.path` says which
# of the target's drafters was used.
_NOT_RESULTS = ("output", "force", "tracker", "record", "sweep", "method", "parts")
_NOT_OF_AR = ("drafter", "tree", "budget", "verify")


def config_hash(config: Config) -> str:
    """12 hex digits over everything a result depends on; equal for settings that cannot lead to
    different results.
    """
    return hash_of(_relevant(config))


def unread_keys(config: Config, keys: list[str]) -> list[str]:
    """Which of these settings the chosen parts do not read: a single run says so, a sweep ignores
    them.
    """
    tree = asdict(config.tree)
    unread = {f"tree.{name}" for name in tree if not reads(tree, name)}
    policy = ("name", *BUDGETS[config.budget.name].reads)
    unread |= {f"budget.{name}" for name in asdict(config.budget) if name not in policy}
    return [key for key in keys if key in unread]


def reads(tree: Mapping[str, Any], knob: str) -> bool:
    """Whether settings `tree` read their `knob`; a tree or scorer of an unknown name may read all.

    Raises nothing, since records of other versions are asked about, too.
    """
    builder, scorer = TREES.get(str(tree.get("name"))), SCORERS.get(str(tree.get("scoring")))
    if builder is None or scorer is None or knob in ("name", *EVERY_TREE):
        return True
    if knob == "candidates" and tree.get("candidates_follow_budget"):
        return False
    return knob in builder.reads or knob in scorer.reads


def _relevant(config: Config) -> dict[str, Any]:
    plain = asdict(config)
    for name in _NOT_RESULTS:
        del plain[name]
    if config.proof == "none":
        del plain["proof_prompts"]
    del plain["model"]["drafters"]
    del plain["benchmark"]["study_max_new_tokens"]  # what became of it is decoding.max_new_tokens
    for key in unread_keys(config, [f"{g}.{k}" for g in ("tree", "budget") for k in plain[g]]):
        group, _, name = key.partition(".")
        del plain[group][name]
    if not config.decoding.temperature:  # nothing is sampled
        plain["tree"].pop("draft_sampling", None)
    plain |= foreign(config)  # two modules may declare parts of one name
    if config.method == AR:
        return {key: v for key, v in plain.items() if key.partition(".")[0] not in _NOT_OF_AR}
    return plain
