"""PCTree's pool: golden family `pctree` (golden/README.md 3.7), every case, on DSpark's vanilla
Markov head.
"""

import pytest
import torch
from tree_support import check_verification_tree, golden_head

from dartree_exp.interfaces import Block, Limits
from dartree_exp.trees.pool import PoolBuilder
from dartree_exp.trees.prune import best_nodes
from dartree_exp.trees.scorer import make_scorer
from golden_support import carried, golden_cases


def make(case, tensors, *, normalise="vocab", candidates="all", wider=0):
    """Scorer, builder and root of a case; K = V, one k for children and frontier."""
    block, root = (
        Block(tensors["hidden"], tensors["base_logits"], None),
        tensors["root_token"].item(),
    )
    made = make_scorer(
        "conditional",
        block,
        golden_head(tensors, 0),
        root,
        candidates=candidates,
        normalise=normalise,
    )
    k = case["params"]["beam_k"] + wider
    return made, PoolBuilder(k, k), root


def check(case, tensors, made, builder, root):
    params, atol = case["params"], case["tolerance"]["scores_atol"]
    depths, budget = (
        params["num_depths"],
        params["num_tree_tokens_incl_root"] - 1,
    )  # PCTree's N counts the root

    pool = builder.pool(made, Limits(depths, budget)).validate()
    assert pool.num_nodes == case["derived"]["pool_nodes"]
    assert torch.equal(pool.tokens[1:], tensors["pool.tokens"])
    assert torch.equal(pool.parents, tensors["pool.parents"])
    assert torch.equal(pool.depths[1:], tensors["pool.depths"])
    torch.testing.assert_close(pool.scores, tensors["pool.scores"], atol=atol, rtol=0)
    width = tensors["frontier"].shape[1]
    for depth in range(1, depths):
        expanded = pool.parents[
            pool.depths == depth + 1
        ].unique_consecutive()  # a parent's children stand together
        assert (
            torch.equal(expanded, tensors["frontier"][depth - 1, : len(expanded)])
            and len(expanded) == width
        )

    kept = tensors["kept_indices"]
    assert len(kept) == case["derived"]["kept_nodes"] and torch.equal(
        best_nodes(pool, budget), tensors["selected_by_rank"]
    )
    tree = builder.build(made, Limits(depths, budget)).validate(budget)
    check_verification_tree(tree, tensors, pool.scores, params["root_position"])
    for node in range(1, tree.num_nodes + 1):
        assert made.candidates(int(tree.depths[node]))[tree.ranks[node]] == tree.tokens[node]


@pytest.mark.parametrize("golden", golden_cases("pctree"))
def test_trees_match(golden):
    case, tensors = golden.read()
    check(case, tensors, *make(case, tensors))


CONTROLS = {
    "another k": {"wider": 1},
    "normalised over a part": {"normalise": "candidates", "candidates": 12},
    "children cut by base logit": {"candidates": 6},
}


def check_all(**change):
    for golden in carried("pctree"):
        case, tensors = golden.read()
        check(case, tensors, *make(case, tensors, **change))


@pytest.mark.parametrize("control", CONTROLS)
def test_a_changed_rule_fails(control):
    with pytest.raises(AssertionError):
        check_all(**CONTROLS[control])


@pytest.mark.parametrize("where", ["pool.stable_topk", "prune.stable_topk"])
def test_unstable_ties_fail(monkeypatch, where):
    # Control: equal scores in reverse order give another frontier, and another tree.
    def reverse(values, k):
        top, index = values.flip(0).sort(descending=True, stable=True)
        return top[:k], values.shape[0] - 1 - index[:k]

    monkeypatch.setattr(f"dartree_exp.trees.{where}", reverse)
    with pytest.raises(AssertionError):
        check_all()
