"""The walk against the reference's cases and the exact law of the tree."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dartree_exp.interfaces import DraftTree
from dartree_exp.models.toy import toy_target
from dartree_exp.trees.masks import position_ids
from dartree_exp.verify.exact import ExactMatch
from dartree_exp.verify.finite import NonFiniteLogitsError, check_finite
from dartree_exp.verify.sampling import RoundDraws, Sampler
from dartree_exp.verify.walk import walk
from golden_support import carried, golden_cases


def verified(tree, logits, sampler, start, index=0):
    """Path and bonus token of one request."""
    draws = RoundDraws([sampler], (start,), index)
    accepted = ExactMatch()(DraftTree.stack([tree]), logits[None], draws)
    return accepted.paths[0], accepted.bonus[0]


def is_walk(case):
    return case.name.startswith("tree_walk")


def is_law(case):
    return case.name.startswith("tree_law")


@pytest.mark.parametrize("golden", golden_cases("sampling", is_walk))
def test_golden_tree_walk(golden):
    cases = golden.spec["subcases"]
    assert len(cases) == golden.spec["num_subcases"] > 0
    for case in cases:
        path, bonus = walk([-1, *case["tokens"]], case["parents"], case["posterior"].__getitem__)
        assert (path, bonus) == (case["accepted_indices"], case["bonus"]), case["name"]
        assert len(path) == case["accepted_length_incl_root"]


def test_control_a_walk_that_ignores_parents_is_caught():
    def careless(tokens, parents, chosen):
        path = [0]
        while (token := chosen(path[-1])) in tokens[path[-1] + 1 :]:
            path.append(tokens.index(token, path[-1] + 1))
        return path, token

    wrong = [
        c["name"]
        for golden in carried("sampling", is_walk)
        for c in golden.spec["subcases"]
        if careless([-1, *c["tokens"]], c["parents"], c["posterior"].__getitem__)[0]
        != c["accepted_indices"]
    ]
    assert wrong


@pytest.mark.parametrize("golden", golden_cases("sampling", is_law))
def test_golden_tree_law(golden):
    """Sampled walks over many seeds reach nodes, stop and end with the enumerated frequencies."""
    arrays = golden.arrays
    probs, parents = arrays["target_probs"], arrays["parents"]
    stop, reach = arrays["stop_prob"].numpy(), arrays["reach_prob"].numpy()
    depths = torch.cat((torch.zeros(1, dtype=torch.int64), arrays["depths"]))
    tokens = torch.cat((torch.tensor([0]), arrays["node_tokens"]))
    tree = DraftTree(tokens, parents, depths, torch.zeros(len(tokens)), None, len(tokens) - 1)
    draws = 3000
    reached = np.zeros(len(tokens))
    stopped = np.zeros(len(tokens))
    bonus = np.zeros(probs.shape)
    for seed in range(draws):
        path, token = verified(
            tree, probs.log(), Sampler(1.0, seed=seed, sample_id=golden.name), start=40
        )
        reached[path] += 1
        stopped[path[-1]] += 1
        bonus[path[-1], token] += 1
    joint = stop[:, None] * arrays["bonus_law"].numpy()  # the stored law is given the stopping node
    laws = (reached, reach), (stopped, stop), (bonus, joint)
    for counts, law in laws:
        assert np.abs(counts / draws - law).max() < 5 * 0.5 / np.sqrt(draws)
    assert reached.sum() / draws == pytest.approx(reach.sum(), abs=0.1)


def test_nan_and_infinite_logits_are_named():
    logits = torch.zeros(3, 4)
    check_finite(logits, "target", "round 0, sample 's'")
    for bad in (float("nan"), float("inf"), float("-inf")):
        logits[1, 2] = bad
        with pytest.raises(
            NonFiniteLogitsError, match=r"draft logits: 1 of 12 .*round 4, sample 'mini-7'"
        ):
            check_finite(logits, "draft", "round 4, sample 'mini-7'")


def chain_of(tokens):
    line = torch.arange(len(tokens))
    return DraftTree(
        torch.tensor(tokens), line - 1, line, torch.zeros(len(tokens)), None, len(tokens) - 1
    )


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0, top_k=3)], ids=["greedy", "T=1"])
def test_only_rows_of_the_walk_are_read(sampler):
    """A bad row that the walk visits is named with its round; one that it does not visit changes
    nothing.
    """
    tree = chain_of([9, 2, 3, 1])
    logits = torch.full((4, 5), -50.0)
    logits[0, 2] = logits[1, 4] = 50.0  # accepts 2, refuses 3
    assert verified(tree, logits, sampler, 10) == ([0, 1], 4)
    logits[2:] = float("nan")
    assert verified(tree, logits, sampler, 10) == ([0, 1], 4)
    for bad in (float("nan"), float("inf"), float("-inf")):
        poisoned = logits.clone()
        poisoned[1, 0] = bad
        with pytest.raises(
            NonFiniteLogitsError, match=r"target logits: 1 of 10 .*round 6, sample 'x'"
        ):
            verified(tree, poisoned, replace(sampler, sample_id="x"), 10, 6)


@pytest.mark.parametrize("row_invariant", [False, True], ids=["library", "row_invariant"])
def test_a_nan_behind_the_mask_reaches_the_visited_rows(row_invariant):
    """So a row that the walk does not visit cannot spoil it silently."""
    target = toy_target("llama", torch.bfloat16, seed=1)
    target.row_invariant = row_invariant
    prompt = [4, 9, 33, 17]
    cache = target.new_cache(12)
    target.prefill(prompt, cache)
    tree = DraftTree(
        torch.tensor([5, 7, 8]),
        torch.tensor([-1, 0, 0]),
        torch.tensor([0, 1, 1]),
        torch.zeros(3),
        None,
        2,
    )
    mask = target.mask(tree.parents, 4)

    def poison(module, arguments, output):
        output[0, 2] = float("nan")  # values of node 2, which neither the root nor node 1 sees
        return output

    handle = target._model.model.layers[0].self_attn.v_proj.register_forward_hook(poison)
    logits = target.verify(tree.tokens, position_ids(tree, 4), mask, cache).logits
    handle.remove()
    assert logits[:2].isnan().all()
