"""The cost-aware budget: its number of nodes is the best one, its tree is prefix closed, and a
request rests while drafting loses time.
"""

import math
from itertools import pairwise

import pytest
import torch
from budget_support import chain, convex, cut, observe, random_tree, staircase, view

from dartree_exp.budgets.chances import EdgeCalibration, path_chances
from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.cost_aware import FEWEST_NODES, CostAwareBudget
from dartree_exp.budgets.rest import ALLOWANCE, FIRST, LONGEST, Rest
from dartree_exp.interfaces import DraftTree, Limits, Overhead

RAW = EdgeCalibration()
SHARP = EdgeCalibration({0.0: (1.5, -0.5), 1.0: (0.5, -0.25)})


def by_hand(tree: DraftTree, a: float = 1.0, b: float = 0.0) -> list[float]:
    """Chance of each drafted node on the host."""
    parents, scores, chances = tree.parents.tolist(), tree.scores.tolist(), [1.0]
    for node in range(1, len(parents)):
        q = math.exp(scores[node] - scores[parents[node]])
        logit = math.log(q / (1 - q)) if q < 1 else 50.0
        chances.append(chances[parents[node]] / (1 + math.exp(-(a * logit + b))))
    return chances[1:]


@pytest.mark.parametrize("pair", [(1.0, 0.0), (0.6, -0.4), (2.0, 1.0)])
def test_a_chance_is_the_product_of_calibrated_edges(pair):
    tree = random_tree(3)
    found = path_chances(tree, *(torch.tensor([[x]], dtype=torch.float64) for x in pair))
    assert found[0].tolist() == pytest.approx(by_hand(tree.one(0), *pair), rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("curve", ["convex", "steps of 4", "steps of 8", "falling once"])
def test_the_number_is_the_best_of_all(seed, curve):
    tree = random_tree(seed, coarse=seed % 2 == 1)
    cost = {
        "convex": convex(seed),
        "steps of 4": staircase(4, 0.6),
        "steps of 8": staircase(8, 1.0),
        "falling once": CostCurve({1: 1.0, 2: 2.5, 9: 2.6, 10: 1.2, 25: 4.0}),
    }[curve]
    chances = sorted(by_hand(tree.one(0)), reverse=True)
    speeds = [(1 + sum(chances[:n])) / (0.4 + cost(n + 1)) for n in range(len(chances) + 1)]
    found = cut(CostAwareBudget(RAW), tree, cost).validate(24)
    assert speeds[found.num_nodes] == pytest.approx(max(speeds), rel=1e-6)
    kept = found.kept[0, 1:].tolist() if found.num_nodes < 24 else range(1, 25)
    total = sum(by_hand(tree.one(0))[node - 1] for node in kept)
    assert total == pytest.approx(sum(chances[: found.num_nodes]), rel=1e-6)


def test_a_staircase_has_a_better_number_behind_its_first_drop():
    """Control: a rule that stops where one more node does not pay would keep less."""
    tree, cost = chain(*[0.9] * 12), staircase(4, 0.5)
    tokens = [sum(0.9**k for k in range(n + 1)) for n in range(13)]
    speeds = [tokens[n] / (0.4 + cost(n + 1)) for n in range(13)]
    first_drop = next(n for n in range(12) if speeds[n + 1] <= speeds[n])
    assert cut(CostAwareBudget(RAW), tree, cost).num_nodes > first_drop


@pytest.mark.parametrize(
    ("curve", "nodes"), [({1: 1.0, 2: 30.0, 25: 700.0}, 0), ({1: 1.0, 25: 1.0}, 24)]
)
def test_plain_decoding_where_rows_are_dear_and_the_cap_where_they_are_free(curve, nodes):
    assert cut(CostAwareBudget(RAW), random_tree(1), CostCurve(curve)).num_nodes == nodes


def test_without_a_curve_the_whole_tree_is_verified():
    policy, unmeasured, tree = CostAwareBudget(RAW), lambda rows: math.nan, random_tree(1)
    assert cut(policy, tree, unmeasured) is tree
    assert policy.plan(view(unmeasured), None) == Limits(64, 64)
    observe(policy, tree, 0)
    assert policy.drafts(view(unmeasured, index=1))


def test_requests_side_by_side_get_what_each_gets_alone():
    """Of different sizes, temperatures and probabilities."""
    trees = [random_tree(seed, nodes) for seed, nodes in ((1, 24), (2, 9), (3, 17))]
    both = DraftTree.stack([tree.one(0) for tree in trees])
    cost, temperatures = convex(5), (0.0, 1.0, 0.5)
    together = cut(CostAwareBudget(SHARP), both, cost, temperatures=temperatures)
    sizes = set()
    for request, tree in enumerate(trees):
        alone = cut(CostAwareBudget(SHARP), tree, cost, temperatures=(temperatures[request],))
        assert together.one(request).tokens.tolist() == alone.one(0).tokens.tolist()
        assert together.one(request).parents.tolist() == alone.one(0).parents.tolist()
        sizes.add(alone.num_nodes)
    assert len(sizes) > 1
    together.validate(24)


def test_pairs_between_two_temperatures_are_interpolated_and_held_beyond():
    assert SHARP.at(0.0) == (1.5, -0.5) and SHARP.at(1.0) == SHARP.at(3.0) == (0.5, -0.25)
    assert SHARP.at(0.5) == pytest.approx((1.0, -0.375))
    assert RAW.at(0.7) == (1.0, 0.0)


def test_doubtful_edges_give_a_smaller_tree():
    tree, cost = random_tree(2), convex(1)
    doubt = EdgeCalibration({0.0: (1.0, -2.0)})
    few, many = (cut(CostAwareBudget(edges), tree, cost).num_nodes for edges in (doubt, RAW))
    assert few < many


def test_the_next_tree_is_no_larger_than_twice_what_was_verified_lately():
    policy, free, dear = CostAwareBudget(RAW), CostCurve({1: 1.0, 64: 1.0}), CostCurve({1: 1, 2: 9})
    cut(policy, random_tree(1, 24), free)
    assert policy.plan(view(free, 1), None) == Limits(policy.plan(view(free, 1), None).depth, 48)
    for curve, nodes in ((free, 64), (dear, FEWEST_NODES)):
        cut(policy, random_tree(1, 40), curve)
        assert policy.plan(view(curve, 1), None).nodes == nodes
    assert policy.plan(view(free, 1, most=Limits(64, 5)), None).nodes == 5


def test_another_loop_starts_anew():
    policy, cost = CostAwareBudget(RAW), CostCurve({1: 1.0, 64: 1.0})
    tree = cut(policy, random_tree(1, 24), cost)
    assert policy.plan(view(cost, 1), None).nodes == 48
    while policy.drafts(view(cost, 1)):
        observe(policy, tree, 0)
    assert not policy.drafts(view(cost, 1))
    assert policy.drafts(view(cost, 0)) and policy.plan(view(cost, 0), None).nodes == FEWEST_NODES


def test_a_request_that_rests_gets_a_bare_root_beside_one_that_drafts():
    policy, cost = CostAwareBudget(RAW), CostCurve({1: 1.0, 64: 1.5})
    both = DraftTree.stack([chain(*[0.8] * 6).one(0), chain(*[0.8] * 6).one(0)])
    rounds = 0
    while len(set(cut_again(policy, both, cost, rounds))) == 1:
        observe(policy, policy.trim(view(cost, rounds, 2), both, None), 0, 6)
        rounds += 1
        assert rounds < 30
    assert cut_again(policy, both, cost, rounds) == [0, 6] and rounds > ALLOWANCE
    assert policy.drafts(view(cost, rounds, 2))
    for _ in range(FIRST):
        assert cut_again(policy, both, cost, 1) == [0, 6]
        observe(policy, policy.trim(view(cost, 1, 2), both, None), 0, 6)
    assert cut_again(policy, both, cost, 1) == [6, 6]


def cut_again(policy, tree, cost, index):
    """Nodes of each request; the first call opens the loop."""
    now = view(cost, index, tree.tokens.shape[0])
    policy.drafts(now)
    kept = policy.trim(now, tree, None)
    return [kept.one(request).num_nodes for request in range(tree.tokens.shape[0])]


def rests(rounds):
    """(start, length) of each rest of a request that gains, as expected, and loses so many plain
    steps.
    """
    rest, found = Rest(), []
    for count, (gained, lost) in enumerate(rounds):
        while rest.resting:
            if not found or found[-1][2]:
                found.append([count, 0, False])
            found[-1][1] += 1
            rest.rested()
        if found:
            found[-1][2] = True
        rest.drafted(gained, gained, lost)
    return [(start, length) for start, length, _ in found]


def test_rests_become_longer_while_probes_fail():
    found = rests([(1.0, 1.4)] * 40)
    lengths = [length for _, length in found]
    assert lengths[:4] == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST] and max(lengths) == LONGEST
    starts = [start for start, _ in found]
    assert all(later - earlier <= 2 for earlier, later in pairwise(starts))  # short probes
    assert (starts[0] - 1) * 0.4 <= ALLOWANCE


def test_a_gain_makes_the_next_rest_short_again():
    rest = Rest(length=LONGEST)
    rest.drafted(4.0, 4.0, 1.4)
    assert rest.length == FIRST and not rest.resting


def test_drafting_that_pays_never_rests_and_a_lucky_start_is_soon_forgotten():
    assert not rests([(3.0, 1.5), (1.0, 1.5), (1.0, 1.5)] * 50)
    [(start, _), *_] = rests([(9.0, 1.5)] * 5 + [(1.0, 1.5)] * 30)
    assert start < 20


def test_a_drafter_that_promises_more_than_it_keeps_rests_as_well():
    rest, rounds = Rest(), 0
    while not rest.resting:
        rest.drafted(3.0, 1.0, 1.5)
        rounds += 1
    assert 3 < rounds < 16


def test_a_bad_streak_is_no_reason_to_rest_if_what_is_expected_pays():
    rest = Rest()
    for advanced in (1, 1, 1, 1, 1, 6) * 5:
        rest.drafted(11 / 6, advanced, 1.5)
        assert not rest.resting


@pytest.mark.parametrize("tokens", [96, 192, 512])
def test_what_is_lost_to_plain_decoding_is_bounded(tokens):
    """A drafter that never hits, at 1.4 plain steps a round."""
    rest, advanced, spent = Rest(), 0, 0.0
    while advanced < tokens:
        if rest.resting:
            rest.rested()
            spent += 1.0
        else:
            rest.drafted(1.0, 1.0, 1.4)
            spent += 1.4
        advanced += 1
    assert spent - tokens < ALLOWANCE + 0.4 + 0.7 * math.log2(tokens / FIRST)


def test_pinned_overhead_counts_like_a_measured_one():
    tree, cost = random_tree(4), convex(2)
    sizes = [
        cut(CostAwareBudget(RAW), tree, cost, overhead=Overhead(draft=seconds)).num_nodes
        for seconds in (0.0, 1.0, 10.0)
    ]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
