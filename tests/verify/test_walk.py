"""The walk against the reference's cases and the exact law of the tree."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from dartree_exp.trees.tree import DraftTree
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.walk import NonFiniteLogitsError, check_finite, verify_tree, walk


def tree_walk_cases(shared):
    return json.loads((shared / "golden/sampling/tree_walk.json").read_text())["subcases"]


def test_golden_tree_walk(shared):
    cases = tree_walk_cases(shared)
    assert len(cases) == 38
    for case in cases:
        path, bonus = walk([-1, *case["tokens"]], case["parents"], case["posterior"].__getitem__)
        assert (path, bonus) == (case["accepted_indices"], case["bonus"]), case["name"]
        assert len(path) == case["accepted_length_incl_root"]


def test_control_a_walk_that_ignores_parents_is_caught(shared):
    def careless(tokens, parents, chosen):
        path = [0]
        while (token := chosen(path[-1])) in tokens[path[-1] + 1 :]:
            path.append(tokens.index(token, path[-1] + 1))
        return path, token

    wrong = [
        c["name"]
        for c in tree_walk_cases(shared)
        if careless([-1, *c["tokens"]], c["parents"], c["posterior"].__getitem__)[0] != c["accepted_indices"]
    ]
    assert wrong


@pytest.mark.parametrize("case", ["tree_law_v4_d1_b3", "tree_law_v5_d3_b12", "tree_law_v8_d6_b32"])
def test_golden_tree_law(shared, case):
    """Sampled walks over many seeds reach nodes, stop and end with the enumerated frequencies."""
    arrays = load_file(shared / f"golden/sampling/{case}.safetensors")
    probs = torch.from_numpy(arrays["target_probs"])
    parents = torch.from_numpy(arrays["parents"])
    depths = torch.cat((torch.zeros(1, dtype=torch.int64), torch.from_numpy(arrays["depths"])))
    tokens = torch.cat((torch.tensor([0]), torch.from_numpy(arrays["node_tokens"])))
    tree = DraftTree(tokens, parents, depths, torch.zeros(len(tokens)), None, len(tokens) - 1)
    draws = 3000
    reached = np.zeros(len(tokens))
    stopped = np.zeros(len(tokens))
    bonus = np.zeros(probs.shape)
    for seed in range(draws):
        path, token = verify_tree(tree, probs.log(), Sampler(1.0, seed=seed, sample_id=case), start=40)
        reached[path] += 1
        stopped[path[-1]] += 1
        bonus[path[-1], token] += 1
    joint = arrays["stop_prob"][:, None] * arrays["bonus_law"]  # the stored law is given the stopping node
    laws = (reached, arrays["reach_prob"]), (stopped, arrays["stop_prob"]), (bonus, joint)
    for counts, law in laws:
        assert np.abs(counts / draws - law).max() < 5 * 0.5 / np.sqrt(draws)
    assert reached.sum() / draws == pytest.approx(arrays["reach_prob"].sum(), abs=0.1)


def test_nan_and_infinite_logits_are_named():
    logits = torch.zeros(3, 4)
    check_finite(logits, "target", 0, "s")
    for bad in (float("nan"), float("inf"), float("-inf")):
        logits[1, 2] = bad
        with pytest.raises(NonFiniteLogitsError, match=r"draft logits: 1 of 12 .*round 4, sample 'mini-7'"):
            check_finite(logits, "draft", 4, "mini-7")
