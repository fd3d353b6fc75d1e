"""PCTree's pool: golden family `pctree` (golden/README.md 3.7), every case, on DSpark's vanilla
Markov head.
"""

import pytest
import torch
from tree_support import check_verification_tree, golden, golden_head, golden_names

from dartree_exp.drafters.block import Block
from dartree_exp.trees.pool import PoolBuilder
from dartree_exp.trees.prune import best_nodes
from dartree_exp.trees.scorer import make_scorer


def make(case, tensors, *, normalise="vocab", candidates="all", k=None):
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
    k = k or case["params"]["beam_k"]
    return made, PoolBuilder(k, k), root


def check(case, tensors, made, builder, root):
    params, atol = case["params"], case["tolerance"]["scores_atol"]
    depths, budget = (
        params["num_depths"],
        params["num_tree_tokens_incl_root"] - 1,
    )  # PCTree's N counts the root

    pool = builder.pool(made, root, depths, budget).validate()
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
    tree = builder.build(made, root, depths, budget).validate(budget)
    check_verification_tree(tree, tensors, pool.scores, params["root_position"])
    for node in range(1, tree.num_nodes + 1):
        assert made.candidates(int(tree.depths[node]))[tree.ranks[node]] == tree.tokens[node]


@pytest.mark.parametrize("name", golden_names("pctree"))
def test_trees_match(shared, name):
    case, tensors = golden(shared, "pctree", name)
    check(case, tensors, *make(case, tensors))


CONTROLS = {
    "another k": ("k4_n16_d7", {"k": 3}),
    "normalised over a part": ("k4_n16_d7", {"normalise": "candidates", "candidates": 16}),
    "children cut by base logit": ("k4_n64_d15", {"candidates": 6}),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_changed_rule_fails(shared, control):
    name, change = CONTROLS[control]
    case, tensors = golden(shared, "pctree", name)
    with pytest.raises(AssertionError):
        check(case, tensors, *make(case, tensors, **change))


@pytest.mark.parametrize("where", ["pool.stable_topk", "prune.stable_topk"])
def test_unstable_ties_fail(shared, monkeypatch, where):
    # Control: equal scores in reverse order give another frontier, and another tree.
    def reverse(values, k):
        top, index = values.flip(0).sort(descending=True, stable=True)
        return top[:k], values.shape[0] - 1 - index[:k]

    case, tensors = golden(shared, "pctree", "ties_k3_n9_d5")
    monkeypatch.setattr(f"dartree_exp.trees.{where}", reverse)
    with pytest.raises(AssertionError):
        check(case, tensors, *make(case, tensors))
