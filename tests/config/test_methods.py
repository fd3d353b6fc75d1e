"""Presets: each sets what its published method needs, yields to the command line, and bears a true
name.
"""

import pytest

from dartree_exp.config import Config, compose
from dartree_exp.config.schema import METHODS, TREES

# drafter, tree, scoring, candidates, children, child_order, normalise, narrow_by_budget,
# candidates_follow_budget
PRESETS = {
    "dflash": ("dflash", "chain", "marginal", 64, None, "base", "vocab", False, False),
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


@pytest.mark.parametrize("method", PRESETS)
def test_a_preset_is_its_published_method(method: str) -> None:
    config = compose([f"+method={method}"])
    assert parts(config) == PRESETS[method]
    assert config.method == method
    widths = {"pctree": 4, "dominotree_frontier": None}
    budget = 16 if method.startswith("dominotree") else 64
    beta = 0 if method in ("ddtree", "dominotree") else -0.2
    assert (config.tree.budget, config.tree.width, config.tree.beta) == (
        budget,
        widths.get(method, 12),
        beta,
    )
    assert config.tree.draft_sampling == "argmax"


@pytest.mark.parametrize("typed", [[], ["tree.beta=-0.1"]])
def test_table_2_compares_the_construction_alone(typed: list[str]) -> None:
    trees = [
        compose([f"method={name}", *typed]).tree
        for name in ("heap_sequential", "chain_ddtree", "dartree_pruned")
    ]
    assert {(tree.beta, tree.budget) for tree in trees} == {(-0.1 if typed else -0.2, 64)}


def test_every_method_has_a_preset() -> None:
    assert {*PRESETS, "ar"} == set(METHODS)
    assert compose(["method=ar"]).method == "ar"


def test_the_default_is_dartree_pruned() -> None:
    assert compose() == compose(["method=dartree_pruned"])


def test_with_and_without_plus_are_the_same() -> None:
    assert compose(["+method=domino"]) == compose(["method=domino"])


def test_the_command_line_wins_over_a_preset() -> None:
    config = compose(["tree.budget=32", "tree.normalise=candidates", "+method=ddtree"])
    assert (config.tree.budget, config.tree.normalise, config.method) == (
        32,
        "candidates",
        "ddtree",
    )
    assert compose(["+method=ddtree", "drafter=domino"]).drafter.head == "gru"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["tree=chain"], "domino"),
        (["tree=heap"], "heap_sequential"),
        (["tree=heap", "tree.child_order=corrected"], "dominotree"),
        (["tree=fixed", "drafter=dflash"], "fixed_marginal"),
        (["tree=pool"], "pool_conditional"),
        (["tree=frontier"], "dominotree_frontier"),
        (["tree=pool", "tree.scoring=static"], "pool_static"),
        (["method=ddtree", "tree=pruned"], "pruned_marginal"),
        (["method=ddtree", "model=toy", "drafter=random"], "ddtree"),
        (["tree=chain", "method=dartree_pruned"], "domino"),
        (["tree=chain", "drafter=dspark"], "dspark"),
        (["method=dspark", "drafter=dspark_rnn"], "dspark_rnn"),
        (["drafter=dspark_gated"], "dartree_dspark_gated"),
        (["method=dartree_fixed", "drafter=dspark"], "dartree_fixed_dspark"),
        (["method=ddtree", "drafter=dspark"], "ddtree"),
    ],
)
def test_a_name_follows_the_parts(overrides: list[str], name: str) -> None:
    assert compose(overrides).method == name


def test_scoring_follows_the_head() -> None:
    assert compose().tree.scoring == "conditional"
    assert compose(["drafter=dflash"]).tree.scoring == "marginal"
    assert compose(["tree.scoring=static"]).tree.scoring == "static"


@pytest.mark.parametrize(
    ("model", "drafter", "path"),
    [
        ("smollm2_135m", "domino", "pkg://dartree_exp.drafters/weights/smollm2_135m"),
        ("smollm2_135m", "dflash", "pkg://dartree_exp.drafters/weights/smollm2_135m"),
        ("qwen3_4b", "domino", "Huang2020/Qwen3-4B-Domino-b16"),
        ("qwen3_8b", "dflash", "z-lab/Qwen3-8B-DFlash-b16"),
        ("qwen3_4b", "dspark", "deepseek-ai/dspark_qwen3_4b_block7"),
        ("smollm2_135m", "dspark_rnn", "pkg://dartree_exp.drafters/weights/smollm2_135m_rnn"),
    ],
)
def test_a_model_brings_its_drafters(model: str, drafter: str, path: str) -> None:
    config = compose([f"model={model}", f"drafter={drafter}"])
    assert config.drafter.path == path
    heads = {"domino": "gru", "dflash": "none", "dspark": "markov", "dspark_rnn": "markov_rnn"}
    assert config.drafter.head == heads[drafter]


def test_shared_knobs_can_be_swept_with_every_tree() -> None:
    for tree in TREES:
        assert compose([f"tree={tree}", "tree.width=8", "tree.beta=-0.1"]).tree.width == 8


def test_the_pool_has_one_k_unless_two_are_set() -> None:
    assert compose(["method=pctree", "tree.width=2"]).tree.children == 2
    assert compose(["method=pctree", "tree.width=2", "tree.children=3"]).tree.children == 3
