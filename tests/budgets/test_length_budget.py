"""The length head's budget: a chain of as many drafts, a tree of as many levels."""

import pytest
import torch
from budget_support import MOST, chain, random_tree, view

from dartree_exp.assemble import make_method
from dartree_exp.budgets.length_head import LengthHeadBudget
from dartree_exp.config import compose
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.errors import ConfigError
from dartree_exp.inputs.checks import check_files
from dartree_exp.interfaces import DraftTree, Limits
from dartree_exp.models.toy import toy_target


class Told:
    """A scorer whose length head says, for each request, what it is told to."""

    def __init__(self, *tokens: float) -> None:
        self.tokens = torch.tensor(tokens)

    def length(self):
        return self.tokens


@pytest.mark.parametrize(
    ("rate", "said", "levels"),
    [(1.0, 3.0, 3), (1.0, 2.1, 3), (1.3, 3.0, 4), (0.5, 3.0, 2), (1.3, 60.0, 64), (0.5, 1e-3, 1)],
)
def test_levels_are_the_expected_tokens_times_the_rate(rate, said, levels):
    at = view(lambda rows: 1.0)
    assert LengthHeadBudget(rate).plan(at, Told(said)) == Limits(levels, MOST.nodes)


def test_what_is_not_a_number_limits_nothing():
    """The loop names the fault of such a block after the round."""
    assert LengthHeadBudget(0.5).plan(view(lambda rows: 1.0), Told(torch.nan)) == MOST


def test_each_request_of_a_batch_gets_its_own_length():
    policy, at = LengthHeadBudget(1.0), view(lambda rows: 1.0, requests=2)
    assert policy.plan(at, Told(2.0, 5.0)).depth == 5
    trees = [chain(0.9, 0.8, 0.7, 0.6, 0.5).one(0), random_tree(3).one(0)]
    both = DraftTree.stack(trees)
    left = policy.trim(at, both, None).validate(MOST.nodes)
    assert left.one(0).depths.tolist() == [0, 1, 2]
    assert sorted(left.one(1).tokens.tolist()) == [
        node for node, depth in enumerate(trees[1].depths.tolist()) if depth <= 5
    ]


def test_a_tree_that_is_short_enough_is_left_alone():
    policy, at, tree = LengthHeadBudget(1.0), view(lambda rows: 1.0), chain(0.9, 0.8)
    policy.plan(at, Told(2.0))
    assert policy.trim(at, tree, None) is tree


def test_drafters_without_a_head_are_refused():
    with pytest.raises(ConfigError, match=r"drafter.family=scripted has no length head; use"):
        compose(["tree=chain", "budget=length_head", "drafter=oracle", "tree.budget=4"])
    config = compose(["method=adaflash", "model=toy"])
    drafter = ScriptedDrafter("oracle", toy_target(), num_drafts=4, seed=0)
    with pytest.raises(ConfigError, match="drafter 'oracle' has no length head"):
        make_method(config.tree, config.budget, drafter)


def test_a_checkpoint_without_a_head_is_refused_before_it_is_loaded():
    config = compose(["method=dflash", "budget=length_head"])
    with pytest.raises(ConfigError, match=r"the checkpoint pkg://.* has no length head"):
        check_files(config)


@pytest.mark.parametrize("tree", ["chain", "fixed"])
def test_the_drafted_rounds_have_the_levels_that_the_head_asks_for(tree):
    from dartree_exp.decode import speculate
    from dartree_exp.drafters.dflash.toy import toy_drafter
    from dartree_exp.metrics.clock import StageClock
    from dartree_exp.verify.sampling import Sampler
    from dartree_exp.verify.stopping import StopRule

    target = toy_target()
    drafter = toy_drafter(target, "none", 0, "adaflash")
    parts = ["method=adaflash", f"tree={tree}", "tree.budget=8", "budget.rate=0.7", "model=toy"]
    config = compose(parts)
    method = make_method(config.tree, config.budget, drafter)
    asked, plan = [], method.policy.plan

    def noted(view, scorer):
        asked.append(plan(view, scorer).depth)
        return plan(view, scorer)

    method.policy.plan = noted
    prompt = [4, 9, 33, 17, 9, 60]
    found = speculate(target, method, prompt, Sampler(), StopRule(24), StageClock())
    assert [int(r.tree.depths.max()) for r in found.rounds] == asked
    assert min(asked) < drafter.num_drafts
    assert {r.tree.num_nodes for r in found.rounds} == (set(asked) if tree == "chain" else {8})
