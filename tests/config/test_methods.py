"""Published names require the published settings."""

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest

from dartree_exp.budgets.spec import AUTO
from dartree_exp.config import Config, compose, config_hash
from dartree_exp.config.composition import composed
from dartree_exp.config.knob import Knob
from dartree_exp.config.knobs import knobs
from dartree_exp.config.load import load_config
from dartree_exp.config.methods import known_methods, method_name
from dartree_exp.config.unread import unread
from dartree_exp.trees.published import PLAIN, Published, SameAs
from dartree_exp.trees.spec import SCORERS, TREES


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["tree.budget=64", "tree=chain"], "domino"),
        (["tree.budget=64", "tree=chain", "tree.candidates=64"], "domino+chain(conditional)"),
        (["tree.budget=64", "tree=heap"], "domino+heap(conditional)"),
        (["tree.budget=64", "drafter=dflash", "tree=heap"], "dflash+heap(marginal)"),
        (["method=ddtree", "tree.beta=-0.2"], "dflash+heap(marginal)"),
        (["method=dominotree", "tree.beta=-0.2"], "domino+heap(conditional)"),
        (["tree.budget=64", "tree=heap", "tree.child_order=corrected"], "domino+heap(conditional)"),
        (["tree.budget=64", "tree=fixed", "drafter=dflash"], "dflash+fixed(marginal)"),
        (["tree.budget=64", "tree=pool"], "domino+pool(conditional)"),
        (["tree.budget=64", "tree=frontier"], "domino+frontier(conditional)"),  # 64 children
        (["method=dartree_pruned", "tree.normalise=vocab"], "domino+pruned(conditional)"),
        (["tree.budget=64", "tree=pool", "tree.scoring=static"], "domino+pool(static)"),
        (["method=ddtree", "tree=pruned"], "dflash+pruned(marginal)"),
        (["method=ddtree", "model=toy", "drafter=random"], "random+heap(marginal)"),
        (["tree=chain", "method=dartree_pruned"], "domino+chain(conditional)"),  # K = 64
        (["tree.budget=64", "tree=chain", "drafter=dspark"], "dspark"),
        (["method=dspark", "drafter=dspark_rnn"], "dspark_rnn+chain(conditional)"),
        (["tree.budget=64", "drafter=dspark_gated"], "dspark_gated+pruned(conditional)"),
        (["method=ddtree", "drafter=dspark"], "dspark+heap(marginal)"),
        (["method=dspark", "budget=confidence"], "dspark"),
        (["method=dartree_dspark", "budget=confidence"], "dspark+pruned(conditional)+confidence"),
        (["method=pctree", "tree.width=2"], "pctree"),
        (["method=pctree", "tree.width=2", "tree.children=3"], "dspark+pool(conditional)"),
        ([], "domino+pruned(conditional)+cost_aware"),
        (["method=dartree_pruned", "tree.budget=auto"], "domino+pruned(conditional)+cost_aware"),
        (["tree.budget=32"], "dartree_pruned"),
        (["tree.budget=32", "budget=cost_aware"], "domino+pruned(conditional)+cost_aware"),
        (
            ["method=ddtree", "tree.budget=auto", "budget=caddtree"],
            "dflash+heap(marginal)+caddtree",
        ),
        (["tree=chain", "budget=libraspec"], "domino+chain(conditional)+libraspec"),
        (["method=mine", "tree.normalise=vocab"], "mine"),
    ],
)
def test_a_name_follows_the_parts(overrides: list[str], name: str, tmp_path: Path) -> None:
    if "method=mine" in overrides:
        (tmp_path / "method").mkdir()
        (tmp_path / "method" / "mine.yaml").write_text("# @package _global_\nmethod: mine\n")
    config = load_config(composed(overrides, config_dirs=[tmp_path]))
    assert config.method == name


def others(hint: Any, knob: Knob, value: Any) -> Iterator[Any]:
    """Other values of a setting, one of each kind that the schema allows."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 7
    for kind in kinds:
        found: list[Any] = []
        if kind is bool:
            found = [not value]
        elif kind is str:
            found = list(knob.allowed) or [f"{value}x"]
        elif kind in (int, float):
            step = 1 if kind is int else 0.125
            low = -math.inf if knob.low is None else knob.low
            high = math.inf if knob.high is None else knob.high
            found = [kind(n) for n in (number - step, number + step) if low <= n <= high]
        elif get_origin(kind) is list:
            item = get_args(kind)[0]
            found = [[*value, 7 if item is Any else item(7)]]
        elif get_origin(kind) is dict:
            found = [{**value, "x": "y"}]
        elif kind is NoneType:
            found = [None]
        yield from (other for other in found if other != value)


def keeps_its_name(config: Config, terms: Published, key: str, value: Any) -> bool:
    """Whether this setting may vary under the published name."""
    group, _, name = key.partition(".")
    if key == "tree.budget" and value == AUTO:
        return False
    if key == "tree.scoring" and terms.scoring is None:  # any
        return True
    if group == "tree":
        return name in terms.free_knobs or key in unread(asdict(config))
    if key == "budget.name":
        return value in terms.budgets
    if key == "drafter.causal":
        return terms.family is None or key in unread(asdict(config))
    taken = {"drafter.family": terms.family, "drafter.head": terms.head}  # None: any
    return key != "verify.name" and taken.get(key) is None


@pytest.mark.parametrize("method", known_methods())
def test_each_deviation_from_a_preset_loses_its_name_unless_the_setting_is_free(
    method: str,
) -> None:
    preset = compose([f"method={method}", "model=toy"])  # which has weights for each
    terms = preset.method != "ar" and TREES[preset.tree.name].published[method]
    seen = {True: 0, False: 0}
    for key, hint, knob in knobs():
        if key == "method":
            continue
        for value in others(hint, knob, attrgetter(key)(preset)):
            config = copy.deepcopy(preset)
            group, _, name = key.rpartition(".")
            setattr(attrgetter(group)(config) if group else config, name, value)
            if terms:
                for other, same in terms.settings.items():
                    if same == SameAs(name) and group == "tree":  # as `conf/` has it
                        setattr(config.tree, other, value)
            kept = not terms or keeps_its_name(preset, terms, key, value)
            assert (method_name(config) == method) == kept, (key, value)
            if config_hash(config) == config_hash(preset):
                assert kept, (key, value)  # one run has one name
            seen[kept] += 1
    assert seen[True] > 20 and (seen[False] > 5 or not terms)


def test_a_verifier_of_another_kind_is_in_the_name() -> None:
    config = compose(["tree.budget=64"])
    config.verify.name = "typical"
    assert method_name(config) == "domino+pruned(conditional)+typical"


def test_every_knob_that_a_published_method_reads_is_fixed_or_free() -> None:
    for tree in TREES.values():
        for method, terms in tree.published.items():
            scorers = SCORERS.values() if terms.scoring is None else [SCORERS[terms.scoring]]
            read = {*tree.reads, *(knob for scorer in scorers for knob in scorer.reads)}
            assert read - set(PLAIN) <= {*terms.settings, *terms.free} <= read, method
            assert not set(terms.settings) & set(terms.free), method


def test_a_published_name_belongs_to_one_method() -> None:
    names = [name for tree in TREES.values() for name in tree.published]
    assert len(set(names)) == len(names) and sorted(["ar", *names]) == sorted(known_methods())


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
