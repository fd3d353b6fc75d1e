"""Which children a parent may have."""

import pytest
import torch

from dartree_exp.trees.children import Children

ROWS = torch.tensor([[-3.0, -1.0, -2.0, -1.0], [-1.0, -2.0, -3.0, -4.0]])


def test_count_follows_limit_candidates_and_budget():
    assert Children().count(64, 6) == 64
    assert Children(limit=8).count(64, 6) == 8
    assert Children(limit=100).count(64, 6) == 64
    assert Children(narrow_by_budget=True).count(64, 6) == 6
    assert Children(limit=4, narrow_by_budget=True).count(64, 6) == 4
    assert Children(narrow_by_budget=True).count(64, 0) == 1


def test_base_order_takes_the_first_of_the_menu():
    values, ranks = Children(limit=2).take(ROWS, 2)
    assert ranks is None and torch.equal(values, ROWS[:, :2])


def test_corrected_order_takes_the_best_and_ties_go_to_the_smaller_rank():
    values, ranks = Children(limit=2, order="corrected").take(ROWS, 2)
    assert values.tolist() == [[-1.0, -1.0], [-1.0, -2.0]]
    assert ranks.tolist() == [[1, 3], [0, 1]]


@pytest.mark.parametrize("kwargs", [{"order": "best"}, {"limit": 0}])
def test_nonsense_is_refused(kwargs):
    with pytest.raises(ValueError):
        Children(**kwargs)
