"""DominoTree's three arms and its frontier: golden family `dominotree` (golden/README.md 3.5),
every case.
"""

import pytest
import torch
from tree_support import golden_head

from dartree_exp.interfaces import Block, Limits
from dartree_exp.kernels.tree_mask import visibility
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.masks import position_ids
from dartree_exp.trees.pool import FrontierBuilder
from dartree_exp.trees.scorer import make_scorer
from golden_support import carried, golden_cases

ARMS = ("marginal", "static", "conditional")


def make(case, tensors, scoring, normalise="vocab_on_prefix"):
    """Scorer and root of a case."""
    params = case["params"]
    block = Block(tensors["hidden"], tensors["base_logits"], None)
    head = golden_head(tensors, params["prefix_len"])
    root = tensors["root_token"].item()
    count = params["corr_topm"] or "all"
    return make_scorer(scoring, block, head, root, candidates=count, normalise=normalise)


def build(case, tensors, arm, *, normalise="vocab_on_prefix", scoring=None):
    params = case["params"]
    made = make(case, tensors, scoring or arm, normalise)
    builder = HeapBuilder(Children(params["node_topk"], "corrected"), ties="insertion")
    return builder.build(made, Limits(params["num_depths"], params["budget"])), made


def check(case, tensors, arm, tree):
    tree.validate(case["params"]["budget"])
    assert tree.num_nodes == case["num_nodes"][arm]
    assert torch.equal(tree.tokens[1:], tensors[f"{arm}.tokens"])
    assert torch.equal(tree.parents, tensors[f"{arm}.parents"])
    assert torch.equal(tree.depths[1:], tensors[f"{arm}.depths"])
    assert torch.equal(visibility(tree.parents), tensors[f"{arm}.visibility"])
    assert torch.equal(
        position_ids(tree, case["params"]["root_position"])[0], tensors[f"{arm}.position_ids"]
    )
    atol = case["tolerance"]["cum_logprobs_atol"]
    torch.testing.assert_close(
        tree.scores[1:].float(), tensors[f"{arm}.cum_logprobs"], atol=atol, rtol=0
    )


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("golden", golden_cases("dominotree"))
def test_trees_match(golden, arm):
    case, tensors = golden.read()
    tree, made = build(case, tensors, arm)
    check(case, tensors, arm, tree)
    if arm == "conditional":
        torch.testing.assert_close(made.start()[0], tensors["root_gru_state"], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "arm,scoring", [("conditional", "static"), ("static", "marginal"), ("marginal", "conditional")]
)
def test_another_scorer_fails(arm, scoring):
    # Control: the arms do differ.
    with pytest.raises(AssertionError):
        for golden in carried("dominotree"):
            case, tensors = golden.read()
            check(case, tensors, arm, build(case, tensors, arm, scoring=scoring)[0])


@pytest.mark.parametrize("normalise", ["candidates", "vocab"])
def test_another_normaliser_fails(normalise):
    # Control: full vocabulary at the prefix depths, the candidates at the others, and nothing else.
    arm = "conditional"
    with pytest.raises(AssertionError):
        for golden in carried("dominotree"):
            case, tensors = golden.read()
            check(case, tensors, arm, build(case, tensors, arm, normalise=normalise)[0])


def build_frontier(case, tensors, arm, width=None):
    params = case["params"]
    made = make(case, tensors, "conditional")
    builder = FrontierBuilder(params["node_topk"], width or case["expected"][arm]["width"])
    return builder.build(made, Limits(params["num_depths"], params["budget"])), made


def check_frontier(case, tensors, arm, tree):
    """The stored tree without its padding: the reference fills a fixed shape up with children of
    the root.
    """
    tree.validate(case["params"]["budget"])
    real = case["expected"][arm]["num_real_nodes"]
    assert tree.num_nodes == real
    assert torch.equal(tree.tokens[1:], tensors[f"{arm}.tokens"][:real])
    assert torch.equal(tree.parents, tensors[f"{arm}.parents"][: real + 1])
    assert torch.equal(tree.depths[1:], tensors[f"{arm}.depths"][:real])
    seen = tensors[f"{arm}.visibility"][: real + 1, : real + 1]
    assert torch.equal(visibility(tree.parents), seen)
    atol = case["tolerance"]["cum_logprobs_atol"]
    torch.testing.assert_close(
        tree.scores[1:], tensors[f"{arm}.cum_logprobs"][:real], atol=atol, rtol=0
    )
    assert (tensors[f"{arm}.cum_logprobs"][real:] < -1e29).all()


@pytest.mark.parametrize("golden", golden_cases("dominotree"))
def test_frontiers_match(golden):
    case, tensors = golden.read()
    for arm in case["expected"]:
        tree, made = build_frontier(case, tensors, arm)
        check_frontier(case, tensors, arm, tree)
        for node in range(1, tree.num_nodes + 1):
            assert made.candidates(int(tree.depths[node]))[tree.ranks[node]] == tree.tokens[node]


@pytest.mark.parametrize("golden", golden_cases("dominotree"))
def test_a_frontier_as_wide_as_the_budget_is_the_heap(golden):
    case, tensors = golden.read()
    tree, _ = build_frontier(case, tensors, "frontier", width=case["params"]["budget"])
    check(case, tensors, "conditional", tree)


def test_another_width_fails():
    # Control: a beam of two lanes misses nodes.
    arm = "frontier"
    with pytest.raises(AssertionError):
        for golden in carried("dominotree"):
            case, tensors = golden.read()
            check_frontier(case, tensors, arm, build_frontier(case, tensors, arm, width=2)[0])
