"""The invariants of a draft tree, and that `validate` catches each way of breaking them."""

from dataclasses import replace

import pytest
import torch
from jaxtyping import TypeCheckError

from dartree_exp.interfaces import DraftTree
from dartree_exp.kernels.tree_mask import visibility
from dartree_exp.trees.ledger import Ledger


def small_tree() -> DraftTree:
    """root 7 -> (3, 5); 3 -> (5); 5 -> (5)."""
    ledger = Ledger(torch.tensor(7))
    ints = torch.tensor
    ledger.add_level(ints([0, 0]), ints([3, 5]), ints([-0.5, -1.0]), ints([0, 1]))
    ledger.add_level(ints([0, 1]), ints([5, 5]), ints([-0.75, -1.0]), ints([2, 0]))
    return ledger.tree()


def test_ledger_numbers_nodes_level_by_level():
    tree = small_tree().validate(budget=4)
    assert tree.tokens.tolist() == [7, 3, 5, 5, 5]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 2]
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
    assert tree.scores.tolist() == [0.0, -0.5, -1.0, -0.75, -1.0]
    assert tree.ranks.tolist() == [-1, 0, 1, 2, 0]
    assert tree.num_nodes == tree.supertree_size == 4


def test_bare_root_is_a_tree():
    tree = Ledger(torch.tensor(7)).tree().validate(budget=0)
    assert tree.num_nodes == 0 and visibility(tree.parents).tolist() == [[True]]


def test_visibility_is_self_and_ancestors():
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
    assert visibility(small_tree().parents).int().tolist() == expected


BROKEN = {
    "not prefix closed": {"parents": [-1, 0, 0, 1, 5]},
    "come before": {"parents": [-1, 0, 3, 1, 2]},
    "not a root": {"parents": [0, 0, 0, 1, 2]},
    "parent -1": {"parents": [-1, 0, -1, 1, 2]},
    "below parent depth": {"depths": [0, 1, 1, 2, 3]},
    "same token": {"tokens": [7, 3, 3, 5, 5]},
    "exceeds its parent": {"scores": [0.0, -0.5, -1.0, -0.4, -1.0]},
    "score nan": {"scores": [0.0, -0.5, -1.0, -0.75, float("nan")]},
    "smaller than the tree": {"supertree_size": 3},
}


@pytest.mark.parametrize("message", BROKEN)
def test_validate_names_what_is_broken(message):
    change = {
        key: value if isinstance(value, int) else torch.tensor(value)
        for key, value in BROKEN[message].items()
    }
    with pytest.raises(ValueError, match=message):
        replace(small_tree(), **change).validate()


def test_fields_have_one_length():
    with pytest.raises(TypeCheckError, match="ranks"):
        replace(small_tree(), ranks=torch.tensor([-1, 0]))


def test_validate_checks_the_budget():
    with pytest.raises(ValueError, match="budget of 3"):
        small_tree().validate(budget=3)
