"""Presets set what their published method needs; the command line takes precedence."""

import re
from pathlib import Path

import pytest

from dartree_exp.config import Config, compose
from dartree_exp.config.composition import groups
from dartree_exp.config.methods import known_methods

# drafter, tree, scoring, candidates, children, child_order, normalise, narrow_by_budget,
# candidates_follow_budget
PRESETS = {
    "speculative_sampling": (
        "domino",
        "sampled",
        "conditional",
        "all",
        1,
        "base",
        "vocab",
        False,
        False,
    ),
    "dflash": ("dflash", "chain", "marginal", 64, None, "base", "vocab", False, False),
    "adaflash": ("adaflash", "chain", "marginal", 64, None, "base", "vocab", False, False),
    "ddtree": ("dflash", "heap", "marginal", 64, None, "base", "vocab", False, True),
    "domino": ("domino", "chain", "conditional", "all", None, "base", "vocab", False, False),
    "dominotree": (
        "domino",
        "heap",
        "conditional",
        64,
        8,
        "corrected",
        "vocab_on_prefix",
        False,
        False,
    ),
    "jetspec": ("jetspec", "heap", "marginal", 64, 7, "base", "vocab", False, False),
    "treeflash": ("treeflash", "heap", "lattice", 16, None, "base", "candidates", False, False),
    "dblast": ("dblast", "chain", "mixture", "all", None, "base", "vocab", False, False),
    "dblast_tree": ("dblast", "pruned", "mixture", 64, None, "base", "candidates", True, False),
    "ptd": ("ptd", "heap", "own", 64, None, "base", "candidates", False, False),
    "draft_model": ("lm", "chain", "own", "all", None, "base", "vocab", False, False),
    "ngram": ("ngram", "heap", "own", 64, None, "base", "candidates", False, False),
    "heap_sequential": (
        "domino",
        "heap",
        "conditional",
        64,
        None,
        "base",
        "candidates",
        True,
        False,
    ),
    "chain_ddtree": ("domino", "heap", "static", 64, None, "base", "vocab", False, True),
    "dartree_fixed": (
        "domino",
        "fixed",
        "conditional",
        64,
        None,
        "base",
        "candidates",
        True,
        False,
    ),
    "dartree_pruned": (
        "domino",
        "pruned",
        "conditional",
        64,
        None,
        "base",
        "candidates",
        True,
        False,
    ),
    "pctree": ("dspark", "pool", "conditional", "all", 4, "base", "vocab", False, False),
    "dominotree_frontier": (
        "domino",
        "frontier",
        "conditional",
        64,
        8,
        "base",
        "vocab_on_prefix",
        False,
        False,
    ),
    "dspark": ("dspark", "chain", "conditional", "all", None, "base", "vocab", False, False),
    "dartree_dspark": (
        "dspark",
        "pruned",
        "conditional",
        64,
        None,
        "base",
        "candidates",
        True,
        False,
    ),
    "eagle2": ("eagle2", "pool", "own", "all", 10, "base", "vocab", False, False),
    "eagle3": ("eagle", "pool", "own", "all", 10, "base", "vocab", False, False),
    "medusa": ("medusa", "static", "marginal", 64, None, "base", "vocab", False, False),
}


def parts(config: Config) -> tuple[object, ...]:
    tree = config.tree
    return (
        config.drafter.name,
        tree.name,
        tree.scoring,
        tree.candidates,
        tree.children,
        tree.child_order,
        tree.normalise,
        tree.narrow_by_budget,
        tree.candidates_follow_budget,
    )


BUDGETS = {
    "dominotree": 16,
    "dominotree_frontier": 16,
    "medusa": 63,
    "jetspec": 255,
    "ptd": 32,
}


@pytest.mark.parametrize("method", PRESETS)
def test_a_preset_is_its_published_method(method: str) -> None:
    config = compose([f"+method={method}", "model=toy"])  # which has weights for each
    assert parts(config) == PRESETS[method]
    assert config.method == method
    widths = {"pctree": 4, "dominotree_frontier": None, "speculative_sampling": None}
    widths |= {"eagle2": 10, "eagle3": 10}
    budget = {
        "dominotree": 16,
        "dominotree_frontier": 16,
        "medusa": 63,
        "jetspec": 255,
        "ptd": 32,
        "ngram": 16,
        "eagle2": 59,
        "eagle3": 59,
    }.get(method, 64)
    beta = 0 if method in ("ddtree", "dominotree", "jetspec", "treeflash", "ptd", "ngram") else -0.2
    assert (config.tree.budget, config.tree.width, config.tree.beta) == (
        budget,
        widths.get(method, 12),
        beta,
    )
    assert config.tree.draft_sampling == "argmax"


@pytest.mark.parametrize("typed", [[], ["tree.beta=-0.1"]])
def test_table_2_compares_only_the_construction(typed: list[str]) -> None:
    trees = [
        compose([f"method={name}", *typed]).tree
        for name in ("heap_sequential", "chain_ddtree", "dartree_pruned")
    ]
    assert {(tree.beta, tree.budget) for tree in trees} == {(-0.1 if typed else -0.2, 64)}


def test_every_method_has_a_preset() -> None:
    assert {*PRESETS, "ar"} == set(known_methods()) == set(groups()["method"])
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [listed] = re.findall(r"`\+method=([a-z0-9_|]+)`", readme)
    assert sorted(listed.split("|")) == sorted(known_methods())
    assert compose(["method=ar"]).method == "ar"


def test_the_default_is_dartree_pruned_with_a_budget_that_follows_the_machine() -> None:
    assert compose(["tree.budget=64"]) == compose(["method=dartree_pruned"])
    assert (compose().tree.budget, compose().budget.name) == ("auto", "cost_aware")
    assert compose() == compose(["method=dartree_pruned", "tree.budget=auto"])


def test_a_policy_that_is_asked_for_may_also_have_a_number_as_its_cap() -> None:
    config = compose(["budget=cost_aware", "tree.budget=32"])
    assert (config.tree.budget, config.budget.name) == (32, "cost_aware")
    assert compose(["tree.budget=32"]).budget.name == "fixed"


def test_with_and_without_plus_are_the_same() -> None:
    assert compose(["+method=domino"]) == compose(["method=domino"])


def test_the_command_line_wins_over_a_preset() -> None:
    config = compose(["tree.budget=32", "tree.normalise=candidates", "+method=ddtree"])
    assert (config.tree.budget, config.tree.normalise) == (32, "candidates")
    assert compose(["+method=ddtree", "drafter=domino"]).drafter.head == "gru"
