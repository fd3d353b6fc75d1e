"""The prefix-closed choice of nodes."""

import pytest
import torch
from tree_support import ALL, drafter, paths, scorer

from dartree_exp.interfaces import Block, DraftTree, Limits
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.levelwise import PrunedBuilder
from dartree_exp.trees.prune import Bound, best_nodes, leading, subtree
from dartree_exp.trees.scorer import make_scorer


def chain_of_certainty(length: int):
    """A chain with a sibling at each step; the chain's scores are all exactly 0."""
    ledger = Ledger(torch.tensor(0))
    for _ in range(length):
        ledger.add_level(
            torch.zeros(2, dtype=torch.int64),
            torch.tensor([1, 2]),
            torch.tensor([0.0, -9.0]),
            torch.arange(2),
        )
    return ledger.tree()


def test_ties_keep_the_ancestors():
    tree = chain_of_certainty(5)
    assert best_nodes(tree, 3, 0.0).tolist() == [1, 3, 5]
    subtree(tree, best_nodes(tree, 3, 0.0)).validate(3)
    # Control: taking the larger index among equals is not prefix closed.
    wrong = torch.tensor([5, 7, 9])
    with pytest.raises(ValueError, match="not prefix closed"):
        subtree(tree, wrong).validate(3)


def test_order_and_links_survive():
    made = scorer("conditional", 3, 4, 7)
    supertree = PrunedBuilder(ALL, 5, 0.0).supertree(made, Limits(4, 99))
    best = best_nodes(supertree, 8, -0.1)
    keys = (supertree.scores - 0.1 * supertree.depths)[best]
    assert (keys[1:] <= keys[:-1]).all()
    everything = list(paths(supertree))
    for kept in (best, best.sort().values):  # by score, or in the order of the supertree
        tree = subtree(supertree, kept).validate(8)
        assert list(paths(tree)) == [everything[node - 1] for node in kept]
        assert torch.equal(tree.ranks[1:], supertree.ranks[kept])
        assert tree.supertree is supertree and tree.kept.tolist() == [0, *kept.tolist()]


def test_a_positive_bonus_breaks_closure():
    # Why builders refuse beta > 0: a deep node outranks its own parent.
    broken = 0
    for seed in range(5):
        supertree = PrunedBuilder(ALL, 4, 0.0).supertree(
            scorer("conditional", seed, 4, 8), Limits(4, 99)
        )
        subtree(supertree, best_nodes(supertree, 4, -0.5)).validate(4)
        kept = (supertree.scores + 50 * supertree.depths)[1:].topk(4).indices.sort().values + 1
        try:
            subtree(supertree, kept).validate(4)
        except ValueError:
            broken += 1
    assert broken


def test_budget_above_the_supertree_keeps_everything():
    tree = chain_of_certainty(2)
    assert best_nodes(tree, 99, -0.2).sort().values.tolist() == [1, 2, 3, 4]


def test_padding_of_a_smaller_tree_is_never_kept():
    def line(length):
        place = torch.arange(1 + length)
        return DraftTree(place, place - 1, place, -place.float(), None, length)

    both = DraftTree.stack([line(3), line(1)])
    kept = torch.ones(2, 3, dtype=torch.bool)
    kept[0, 2] = False
    cut = leading(both, kept).validate(3)
    assert [cut.one(r).num_nodes for r in (0, 1)] == [2, 1]


@pytest.mark.parametrize("beta", [0.0, -0.3])
@pytest.mark.parametrize("budget", [1, 3, 8])
def test_a_bounded_supertree_is_pruned_to_the_same_tree(budget, beta):
    grown = 0
    for seed in range(6):
        for requests in (1, 2):
            (block, head), (other, _) = drafter(seed, 7, 9), drafter(seed + 50, 7, 9)
            blocks = Block.stack([block, other][:requests])
            made = make_scorer("conditional", blocks, head, (0,) * requests, candidates="all")
            builder, limits = PrunedBuilder(ALL, 6, beta), Limits(7, budget)
            whole = builder.supertree(made, limits)
            bounded = builder.build(made, limits)
            expected = subtree(whole, best_nodes(whole, budget, beta).sort(-1).values)
            for name in ("tokens", "parents", "depths", "ranks"):
                assert torch.equal(getattr(bounded, name), getattr(expected, name))
            torch.testing.assert_close(bounded.scores, expected.scores)
            assert bounded.supertree_size == whole.num_nodes == 42
            grown += bounded.supertree.num_nodes < whole.num_nodes
    assert grown == (12 if budget == 1 else grown)


def test_the_bound_counts_nodes_that_can_have_kept_descendants():
    bound = Bound(3, -0.5)
    assert bound.open(torch.tensor([[-0.1, -2.0]]), 1) == 2  # fewer than three so far
    assert bound.open(torch.tensor([[-0.1, -1.4, -3.0]]), 2) == 2  # third best: -2.4; -4.0 is out
    assert bound.open(torch.tensor([[-1.0, -2.0]]), 3) == 0  # -2.5 is below the third best
