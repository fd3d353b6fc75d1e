"""CaDDTree's rule: its convex fit, its stop, and where it differs from the best number of nodes."""

import math

import numpy as np
import pytest
from budget_support import chain, convex, cut, random_tree, staircase

from dartree_exp.budgets.caddtree import CaddtreeBudget
from dartree_exp.budgets.chances import EdgeCalibration
from dartree_exp.budgets.convex import convex_fit, nonnegative_least_squares
from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.cost_aware import CostAwareBudget
from dartree_exp.interfaces import Overhead


def theta(tree, cost, draft):
    """Published: raw path probabilities best first, the draft alone, n rows for n nodes."""
    mass = np.cumsum(sorted(np.exp(tree.scores[0, 1:].double().numpy()), reverse=True))
    return [(1 + m) / (draft + cost(n)) for n, m in enumerate([0.0, *mass])]


@pytest.mark.parametrize("seed", range(8))
def test_on_a_convex_curve_it_is_the_best_number(seed):
    tree, cost = random_tree(seed), convex(seed + 50)
    kept = cut(CaddtreeBudget(), tree, cost).validate(24)
    speeds = theta(tree, cost, 0.3)
    assert speeds[kept.num_nodes] == pytest.approx(max(speeds), rel=1e-6)


@pytest.mark.parametrize(
    ("curve", "nodes"), [({1: 1.0, 2: 30.0, 25: 700.0}, 1), ({1: 1.0, 25: 1.0}, 24)]
)
def test_dear_and_free_rows(curve, nodes):
    """n rows for n nodes, so the first node is free to it: the published off by one."""
    assert cut(CaddtreeBudget(), random_tree(1), CostCurve(curve)).num_nodes == nodes


def test_the_draft_counts_and_the_rest_of_a_round_does_not():
    tree, cost = random_tree(4), convex(2)

    def nodes(overhead):
        return cut(CaddtreeBudget(), tree, cost, overhead=overhead).num_nodes

    assert nodes(Overhead(0.3, 0.0)) == nodes(Overhead(0.3, 5.0)) < nodes(Overhead(5.3, 0.0))


def test_a_staircase_is_straightened_where_cost_aware_uses_its_steps():
    tree, cost = chain(*[0.9] * 12), staircase(4, 0.5)
    ours = cut(CostAwareBudget(EdgeCalibration()), tree, cost).num_nodes
    assert ours % 4 == 3  # all rows of a step
    assert cut(CaddtreeBudget(), tree, cost).num_nodes != ours


def test_without_a_curve_the_whole_tree_is_verified():
    tree = random_tree(1)
    assert cut(CaddtreeBudget(), tree, lambda rows: math.nan) is tree


def test_a_convex_rising_curve_is_its_own_fit():
    points = convex(3).points
    assert [y for _, y in convex_fit(points)] == pytest.approx([y for _, y in points], rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_rises_is_convex_and_no_nearby_curve_is_closer(seed):
    rng = np.random.default_rng(seed)
    x = np.array([1, 2, 5, 9, 17, 33, 65])
    y = 2 + 0.01 * x + rng.normal(0, 0.5, 7)
    fitted = np.array([value for _, value in convex_fit(list(zip(x.tolist(), y, strict=True)))])

    def allowed(curve):
        slopes = np.diff(curve) / np.diff(x)
        return slopes[0] >= -1e-9 and (np.diff(slopes) >= -1e-9).all()

    assert allowed(fitted)
    error = ((fitted - y) ** 2).sum()
    tried = 0
    for _ in range(2000):
        other = fitted + rng.normal(0, 0.02) + rng.normal(0, 0.002) * x
        other = other + rng.normal(0, 0.002) * np.maximum(x - rng.choice(x), 0)
        if allowed(other):
            tried += 1
            assert ((other - y) ** 2).sum() >= error - 1e-9
    assert tried > 50


def test_least_squares_with_a_bound_that_holds():
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert nonnegative_least_squares(matrix, np.array([1.0, -1.0, 0.5])).tolist() == (
        pytest.approx([0.75, 0.0])
    )
