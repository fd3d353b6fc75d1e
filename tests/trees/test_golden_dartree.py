"""DARTree fixed and pruned: golden family `dartree` (golden/README.md 3.6)."""

import pytest
import torch
from tree_support import check_verification_tree, golden_head

from dartree_exp.interfaces import Block, Limits
from dartree_exp.kernels.tree_mask import tree_mask
from dartree_exp.trees.children import Children
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.prune import best_nodes
from dartree_exp.trees.scorer import make_scorer
from golden_support import carried, golden_cases


def make(case, tensors, *, normalise="candidates", narrow=True, beta=None):
    """Scorer and builder of a case."""
    params = case["params"]
    block = Block(tensors["hidden"], tensors["base_logits"], None)
    head = golden_head(tensors, params["prefix_len"])
    count = min(params["vocab_size"], max(params["expansion_k"], params["candidate_vocab_size"]))
    made = make_scorer(
        "conditional", block, head, root_of(tensors), candidates=count, normalise=normalise
    )
    children = Children(params["expansion_k"], narrow_by_budget=narrow)
    if params["variant"] == "fixed":
        return made, FixedBuilder(children)
    return made, PrunedBuilder(
        children, params["supertree_width"], params["depth_bonus"] if beta is None else beta
    )


def root_of(tensors) -> int:
    return tensors["root_token"].item()


def all_states(made, supertree) -> torch.Tensor:
    """State of every node, one depth at a time."""
    states = made.start()
    for depth in range(1, int(supertree.depths.max()) + 1):
        level = supertree.depths == depth
        new = made.advance(states, depth, supertree.parents[level], supertree.tokens[level])
        states = torch.cat([states, new])
    return states


def check(case, tensors, made, builder):
    params, derived, tolerance = case["params"], case["derived"], case["tolerance"]
    depths, budget = params["num_depths"], params["budget"]

    assert torch.equal(made.table.ids, tensors["candidate_ids"])
    torch.testing.assert_close(
        made.table.selection.values, tensors["candidate_base"], atol=0, rtol=0
    )

    supertree = builder.supertree(made, Limits(depths, budget)).validate()
    assert supertree.num_nodes == derived["supertree_nodes"]
    assert torch.equal(supertree.tokens[1:], tensors["supertree.tokens"])
    assert torch.equal(supertree.parents, tensors["supertree.parents"])
    assert torch.equal(supertree.depths[1:], tensors["supertree.depths"])
    assert torch.equal(supertree.ranks[1:], tensors["supertree.candidate_rank"])
    widths = [(supertree.depths == depth).sum().item() for depth in range(1, depths + 1)]
    assert widths == derived["widths_per_depth"]
    atol = tolerance["path_scores_atol"]
    torch.testing.assert_close(
        supertree.scores, tensors["supertree.path_scores"], atol=atol, rtol=0
    )
    keys = supertree.scores + params["depth_bonus"] * supertree.depths
    torch.testing.assert_close(keys, tensors["supertree.prune_scores"], atol=atol, rtol=0)
    if "supertree.states" in tensors:
        states = all_states(made, supertree)
        torch.testing.assert_close(
            states, tensors["supertree.states"], atol=tolerance["states_atol"], rtol=0
        )

    tree = builder.build(made, Limits(depths, budget)).validate(budget)
    assert (
        tree.num_nodes == derived["tree_nodes"]
        and tree.supertree_size == derived["supertree_nodes"]
    )
    assert (tree.num_nodes < supertree.num_nodes) == derived["pruned"]
    kept = tensors["kept_indices"]
    if derived["pruned"]:
        assert torch.equal(best_nodes(supertree, budget, params["depth_bonus"]).sort().values, kept)
    assert torch.equal(tree.tokens, tensors["tree.verify_input_ids"])
    start = params["root_position"]
    check_verification_tree(tree, tensors, supertree.scores, start)
    if "tree.additive_mask_fp32" in tensors:
        assert torch.equal(
            tree_mask(tree.parents, start, torch.float32), tensors["tree.additive_mask_fp32"]
        )


@pytest.mark.parametrize("golden", golden_cases("dartree"))
def test_trees_match(golden):
    case, tensors = golden.read()
    check(case, tensors, *make(case, tensors))


@pytest.mark.parametrize("golden", golden_cases("dartree"))
def test_full_vocabulary_on_the_prefix_shifts_scores_only(golden):
    # The release's eager path normalises its uncorrected slots over the whole vocabulary: same
    # tree, other scores.
    case, tensors = golden.read()
    if "supertree.path_scores_fullvocab_prefix" not in tensors:
        pytest.skip("the case has no such scores")
    made, builder = make(case, tensors, normalise="vocab_on_prefix")
    supertree = builder.supertree(
        made, Limits(case["params"]["num_depths"], case["params"]["budget"])
    )
    expected = tensors["supertree.path_scores_fullvocab_prefix"]
    assert torch.equal(supertree.tokens[1:], tensors["supertree.tokens"])
    torch.testing.assert_close(
        supertree.scores, expected, atol=case["tolerance"]["path_scores_atol"], rtol=0
    )


CONTROLS = {
    "normaliser": {"normalise": "vocab"},
    "prefix normaliser": {"normalise": "vocab_on_prefix"},
    "budget rule": {"narrow": False},
    "depth bonus": {"beta": 0.0},
}


def check_all(**change):
    for golden in carried("dartree"):
        case, tensors = golden.read()
        check(case, tensors, *make(case, tensors, **change))


@pytest.mark.parametrize("control", CONTROLS)
def test_a_changed_rule_fails(control):
    with pytest.raises(AssertionError):
        check_all(**CONTROLS[control])


def test_ties_that_go_unnoticed_fail(monkeypatch):
    # Control: plain top-k, which leaves the order of ties open, gets tied paths wrong.
    monkeypatch.setattr(
        "dartree_exp.trees.levelwise.stable_topk", lambda values, k: tuple(values.topk(k))
    )
    with pytest.raises(AssertionError):
        check_all()


def test_unstable_ties_fail(monkeypatch):
    # Control: equal path scores in reverse order build another tree.
    def reverse(values, k):
        top, index = values.flip(0).sort(descending=True, stable=True)
        return top[:k], values.shape[0] - 1 - index[:k]

    monkeypatch.setattr("dartree_exp.trees.levelwise.stable_topk", reverse)
    with pytest.raises(AssertionError):
        check_all()
