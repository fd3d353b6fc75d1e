"""DDTree's heap: golden family `ddtree_heap` (golden/README.md 3.1), every case."""

import pytest
import torch
from tree_support import ALL

from dartree_exp.interfaces import Block, Limits
from dartree_exp.kernels.tree_mask import visibility
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.menu import MenuScorer
from dartree_exp.trees.scorer import make_scorer
from golden_support import carried, golden_cases

ROOT = 0


def build(case, tensors, ties=None, normalise="vocab"):
    """The tree of a case by the marginal scorer with DDTree's K = min(B, V)."""
    params = case["params"]
    logits = tensors["draft_logits"].float()
    block = Block(logits.new_zeros(len(logits), 1), logits, None)
    count = max(1, min(params["budget"], params["vocab_size"]))
    made = make_scorer("marginal", block, None, ROOT, candidates=count, normalise=normalise)
    if (
        case["kind"] == "tie_tokens"
    ):  # torch.topk chose an order of its own there: take its rows as they are stored
        made = Stored(tensors)
    return HeapBuilder(ALL, ties).build(made, Limits(params["num_depths"], params["budget"])), made


class Stored(MenuScorer):
    """The menus of a golden file."""

    def __init__(self, tensors):
        self.num_drafts = len(tensors["topk_tokens"])
        self.root = torch.tensor(ROOT)
        self._ids = tensors["topk_tokens"]
        self._menus = tensors["topk_logprobs"][:, None].unbind()

    def candidates(self, depth):
        return self._ids[depth - 1]

    def score(self, state, depth):
        return self._menus[depth - 1]

    def one(self, request):
        raise NotImplementedError


def check(case, tensors, tree):
    tree.validate(case["params"]["budget"])
    assert tree.num_nodes == case["num_nodes"]
    assert torch.equal(tree.tokens[1:], tensors["node_tokens"])
    assert torch.equal(tree.depths[1:], tensors["node_depths"])
    assert torch.equal(tree.parents, tensors["parents"])
    assert torch.equal(visibility(tree.parents), tensors["visibility"])
    atol = case["tolerance"]["path_logprobs_atol"]
    torch.testing.assert_close(tree.scores.float(), tensors["path_logprobs"], atol=atol, rtol=0)
    children = [[] for _ in range(tree.num_nodes + 1)]
    for node, parent in enumerate(tree.parents.tolist()[1:], start=1):
        children[parent].append([tree.tokens[node].item(), node])
    assert children == case["child_maps"]


@pytest.mark.parametrize("golden", golden_cases("ddtree_heap"))
def test_trees_match(golden):
    case, tensors = golden.read()
    tree, made = build(case, tensors)
    check(case, tensors, tree)
    if (
        "topk_tokens" in tensors
        and case["kind"] == "random"
        and tensors["draft_logits"].dtype == torch.float32
    ):
        for depth in range(1, case["params"]["num_depths"] + 1):
            assert torch.equal(made.candidates(depth), tensors["topk_tokens"][depth - 1])


def test_the_other_tie_rule_fails():
    # Control: the comparison notices insertion order where DDTree's rank tuple decides.
    with pytest.raises(AssertionError):
        for golden in carried("ddtree_heap"):
            case, tensors = golden.read()
            check(case, tensors, build(case, tensors, ties="insertion")[0])


def test_the_other_normaliser_fails():
    # Control: normalising over K < V candidates shifts the scores and, across depths, the tree.
    with pytest.raises(AssertionError):
        for golden in carried("ddtree_heap"):
            case, tensors = golden.read()
            check(case, tensors, build(case, tensors, normalise="candidates")[0])
