"""LibraSpec: the published length by hand, and the walk on the cost curve."""

import math
from itertools import pairwise

import pytest
import torch
from budget_support import chain, convex, cut, staircase, view

from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.libraspec import LibraSpecBudget, published_length, walk
from dartree_exp.interfaces import DraftTree


def unmeasured(rows):
    return math.nan


@pytest.mark.parametrize(
    ("q", "alpha", "length"),
    [
        ([0.5, 0.5], 2.2, 2),  # eps_1 = floor(2.2 * 0.75 + 1) = 2, eps_2 = floor(1.1 + 2) = 3
        ([0.1, 0.9, 0.9], 2.2, 1),  # eps_1 = floor(2.2 * (0.1 + 0.09 + 0.081) + 1) = 1
        ([0.9, 0.9, 0.01, 0.9], 2.2, 3),  # eps_3 = floor(2.2 * (0.01 + 0.009) + 3) = 3
        ([0.9] * 6, 2.2, 6),
        ([0.2] * 6, 0.0, 1),
        ([], 2.2, 0),
    ],
)
def test_the_published_length_by_hand(q, alpha, length):
    assert published_length(q, alpha) == length
    if q:
        assert cut(LibraSpecBudget(alpha), chain(*q), unmeasured).num_nodes == length


def speeds(q, cost, overhead):
    tokens, product = [1.0], 1.0
    for one in q:
        product *= one
        tokens.append(tokens[-1] + product)
    return [t / (overhead + cost(n + 1)) for n, t in enumerate(tokens)]


@pytest.mark.parametrize("seed", range(12))
def test_it_converges_to_the_best_length_and_each_step_is_faster(seed):
    noise = torch.Generator().manual_seed(seed)
    q = (0.3 + 0.7 * torch.rand(14, generator=noise)).tolist()
    cost = convex(seed, 16)
    speed = speeds(q, cost, 0.4)
    best = max(range(15), key=speed.__getitem__)
    for start in range(15):
        path = walk(start, speed.__getitem__, 14)
        assert path[-1] == best
        assert all(abs(later - earlier) == 1 for earlier, later in pairwise(path))
        assert all(speed[later] > speed[earlier] for earlier, later in pairwise(path))
    assert cut(LibraSpecBudget(2.2), chain(*q), cost).num_nodes == best


def test_it_walks_from_the_published_length():
    """On a staircase the start decides: a walk from the whole chain would end elsewhere."""
    q, cost = [0.9] * 11 + [0.001], staircase(4, 0.5)
    speed = speeds(q, cost, 0.4)
    lengths = {alpha: LibraSpecBudget(alpha).length(view(cost), q) for alpha in (0.0, 2.2)}
    for alpha, length in lengths.items():
        assert length == walk(published_length(q, alpha), speed.__getitem__, 12)[-1]
    assert lengths[0.0] < lengths[2.2]


@pytest.mark.parametrize(
    ("curve", "nodes"), [({1: 1.0, 2: 30.0, 25: 700.0}, 0), ({1: 1.0, 25: 1.0}, 9)]
)
def test_plain_decoding_where_rows_are_dear_and_the_cap_where_they_are_free(curve, nodes):
    assert cut(LibraSpecBudget(2.2), chain(*[0.8] * 9), CostCurve(curve)).num_nodes == nodes


def test_requests_side_by_side_get_what_each_gets_alone():
    chains, cost = [chain(*[0.9] * 8), chain(0.9, 0.1, 0.9, 0.9)], convex(7)
    both = DraftTree.stack([one.one(0) for one in chains])
    together = cut(LibraSpecBudget(2.2), both, cost).validate(8)
    sizes = [cut(LibraSpecBudget(2.2), one, cost).num_nodes for one in chains]
    assert [together.one(r).num_nodes for r in (0, 1)] == sizes and sizes[0] > sizes[1]
