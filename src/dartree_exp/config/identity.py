"""What a run is: its hash (what a result depends on) and its method's name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dartree_exp.config.schema import METHODS, Config
from dartree_exp.records.files import hash_of

# Where a result goes, who is told and what it is called do not change it. `drafter.path` says which
# of the target's drafters was used.
_NOT_RESULTS = ("output", "force", "tracker", "record", "sweep", "method")
_NOT_READ = {
    "chain": ("width", "beta"),
    "heap": ("width", "draft_sampling"),
    "fixed": ("width", "beta", "draft_sampling"),
    "pruned": ("draft_sampling",),
    "pool": ("beta", "child_order", "narrow_by_budget", "draft_sampling"),
    "frontier": ("beta", "child_order", "narrow_by_budget", "draft_sampling"),
}
_NOT_READ_BY_BUDGET = {"fixed": ("threshold",), "confidence": ()}
_PLAIN = ("drafter", "tree", "budget")

_NAMES = {
    ("chain", "marginal"): "dflash",
    ("chain", "conditional"): "domino",
    ("heap", "marginal"): "ddtree",
    ("heap", "static"): "chain_ddtree",
    ("fixed", "conditional"): "dartree_fixed",
    ("pruned", "conditional"): "dartree_pruned",
    ("frontier", "conditional"): "dominotree_frontier",
}
_ON_MARKOV = {"domino": "dspark", "dartree_pruned": "dartree_dspark", "pool_conditional": "pctree"}
"""Published names of the same trees on DSpark's heads; other trees get `_dspark` appended."""


def config_hash(config: Config) -> str:
    """12 hex digits over everything a result depends on; equal for settings that cannot lead to
    different results.
    """
    return hash_of(_relevant(config))


def unread_keys(config: Config, keys: list[str]) -> list[str]:
    """Which of these settings the chosen tree and budget do not read: a single run says so, a sweep
    ignores them.
    """
    unread = {f"tree.{name}" for name in _NOT_READ[config.tree.name]}
    unread |= {f"budget.{name}" for name in _NOT_READ_BY_BUDGET[config.budget.name]}
    return [key for key in keys if key in unread]


def reads(tree: str, knob: str) -> bool:
    """Whether a tree of this name reads the setting tree.<knob>; one of an unknown name may read
    all.
    """
    return knob not in _NOT_READ.get(tree, ())


def method_name(config: Config) -> str:
    """The name under which a run appears: the declared one, unless that is a published name its
    parts do not earn.
    """
    if config.method is not None and (config.method == "ar" or config.method not in METHODS):
        return config.method
    tree, head = config.tree, config.drafter.head
    if (tree.name, tree.scoring) == ("heap", "conditional"):
        name = "dominotree" if tree.child_order == "corrected" else "heap_sequential"
    else:
        name = _NAMES.get((tree.name, str(tree.scoring)), f"{tree.name}_{tree.scoring}")
    if tree.scoring == "marginal" or not head.startswith("markov"):
        return name
    return _ON_MARKOV.get(name, f"{name}_dspark") + head.removeprefix("markov")


def _relevant(config: Config) -> dict[str, Any]:
    plain = asdict(config)
    for name in _NOT_RESULTS:
        del plain[name]
    if config.proof == "none":
        del plain["proof_prompts"]
    del plain["model"]["drafters"]
    del plain["benchmark"]["study_max_new_tokens"]  # what became of it is decoding.max_new_tokens
    for name in _NOT_READ[config.tree.name]:
        del plain["tree"][name]
    for name in _NOT_READ_BY_BUDGET[config.budget.name]:
        del plain["budget"][name]
    if not config.decoding.temperature:  # nothing is sampled
        plain["tree"].pop("draft_sampling", None)
    if config.method == "ar":
        for name in _PLAIN:
            del plain[name]
    return plain
