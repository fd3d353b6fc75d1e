"""The best-first heap: exact, tie rules, one correction per popped node."""

import pytest
import torch
from tree_support import ALL, every_path, paths, scorer

from dartree_exp.interfaces import Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("budget", [1, 5, 17])
def test_heap_is_brute_force_top_b(scoring, budget):
    made = scorer(scoring, 7, 4, 5)
    best = sorted(every_path(made, 4).items(), key=lambda item: -item[1])[:budget]
    tree = HeapBuilder(ALL).build(made, Limits(4, budget)).validate(budget)
    assert list(paths(tree)) == [path for path, _ in best]  # in the order of popping, best first
    assert list(paths(tree).values()) == pytest.approx([score for _, score in best], abs=1e-6)


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("budget", [0, 2, 4, 9, 20])
def test_a_spine_first_tree_is_the_greedy_chain_and_then_the_best(scoring, budget):
    made = scorer(scoring, 7, 4, 5)
    chain = ChainBuilder().build(made, Limits(4, budget))
    tree = HeapBuilder(ALL, expansion="spine_first").build(made, Limits(4, budget)).validate(budget)
    assert list(paths(tree))[: chain.num_nodes] == list(paths(chain))
    inside, outside = set(paths(tree)), every_path(made, 4)
    rest = [p for p in paths(tree) if p not in paths(chain)]
    assert [outside[p] for p in rest] == sorted((outside[p] for p in rest), reverse=True)
    closed = [s for p, s in outside.items() if p not in inside and (p[:-1] in inside or not p[:-1])]
    assert not rest or outside[rest[-1]] >= max(closed) - 1e-6


def grown_by_pushing_all(made, depth, width, budget):
    """JetSpec's rule, written out over every path: the best node without children gets them all."""
    scores, nodes, leaves = {(): 0.0, **every_path(made, depth)}, [], [()]
    while leaves and len(nodes) < budget:
        best = max(leaves, key=lambda path: scores[path])  # the first of equal ones
        leaves.remove(best)
        below = [p for p in scores if len(p) == len(best) + 1 and p[:-1] == best]
        for child in sorted(below, key=lambda path: -scores[path])[:width]:
            if len(nodes) < budget:
                nodes.append(child)
                leaves += [child] if len(child) < depth else []
    return nodes


@pytest.mark.parametrize("scoring", ["marginal", "conditional"])
@pytest.mark.parametrize("width,budget", [(2, 7), (3, 11), (4, 40), (5, 1)])
def test_pushing_all_children(scoring, width, budget):
    made = scorer(scoring, 3, 3, 6)
    children = Children(limit=width, order="corrected")
    tree = HeapBuilder(children, expansion="push_all").build(made, Limits(3, budget))
    assert list(paths(tree.validate(budget))) == grown_by_pushing_all(made, 3, width, budget)


def test_pushing_all_is_not_the_tree_of_the_best_nodes():
    made = scorer("marginal", 3, 3, 6)
    trees = [
        HeapBuilder(Children(limit=4), expansion=how).build(made, Limits(3, 8))
        for how in ("best", "push_all")
    ]
    assert set(paths(trees[0])) != set(paths(trees[1]))
    assert sum(paths(trees[0]).values()) > sum(paths(trees[1]).values())


def test_an_unknown_expansion_is_refused():
    with pytest.raises(ValueError, match="best, spine_first, push_all"):
        HeapBuilder(ALL, expansion="depth_first")


def test_depth_limit_and_children_narrow_the_heap():
    made = scorer("conditional", 2, 4, 5)
    tree = HeapBuilder(Children(limit=2, order="corrected")).build(made, Limits(2, 100)).validate()
    assert tree.depths.max() == 2 and tree.num_nodes == 2 + 4
    allowed = every_path(made, 2)
    firsts = sorted((p for p in allowed if len(p) == 1), key=lambda p: -allowed[p])[:2]
    assert [p for p in paths(tree) if len(p) == 1] == firsts


def test_base_order_limits_to_the_first_of_the_menu():
    made = scorer("conditional", 2, 2, 5)
    tree = HeapBuilder(Children(limit=2)).build(made, Limits(2, 100)).validate()
    assert tree.num_nodes == 6 and set(tree.ranks[1:].tolist()) == {0, 1}
    assert [made.candidates(1)[r] for r in (0, 1)] == [
        t for t in made.candidates(1).tolist() if (t,) in paths(tree)
    ]


def test_whole_vocabulary_smaller_than_the_budget():
    made = scorer("marginal", 0, 2, 3)
    assert HeapBuilder(ALL).build(made, Limits(2, 100)).validate(100).num_nodes == 12


@pytest.mark.parametrize("scoring", ["marginal", "conditional"])
def test_budget_zero_is_the_bare_root_and_negative_is_refused(scoring):
    made = scorer(scoring, 0, 2, 3, root=2)
    assert HeapBuilder(ALL).build(made, Limits(2, 0)).validate(0).tokens.tolist() == [2]
    assert HeapBuilder(ALL).build(made, Limits(0, 4)).validate(4).tokens.tolist() == [2]
    with pytest.raises(ValueError, match="negative"):
        HeapBuilder(ALL).build(made, Limits(2, -1))


class Flat:
    """Two candidates at each of two depths; scores by path, with exact ties."""

    num_drafts = 2
    path_dependent = True
    root = torch.tensor(0)

    def __init__(self, first):
        self.scores = {(): first, (0,): [-1.0, -1.0], (1,): [0.0, -1.0]}

    def start(self):
        return torch.empty(1, 0, dtype=torch.int64)

    def candidates(self, depth):
        return torch.tensor([0, 1])

    def score(self, state, depth):
        return torch.tensor([self.scores[tuple(row)] for row in state.tolist()])

    def advance(self, state, depth, parent, token):
        return torch.cat([state[parent], token[:, None]], dim=1)


def test_tie_rules_differ_as_published():
    # Open after popping (0): (1) at -1. After (1): its child (1, 0) at -1; then (0, 0), (0, 1), (1,
    # 1) all at -2.
    even = Flat([-1.0, -1.0])
    insertion = HeapBuilder(ALL).build(even, Limits(2, 6))  # the default of a path-dependent scorer
    assert list(paths(insertion)) == [(0,), (1,), (1, 0), (0, 0), (0, 1), (1, 1)]

    certain = Flat([-1.0, 0.0])  # (1) is popped first; its second child and (0) then tie at -1
    tuples = HeapBuilder(ALL, ties="rank_tuple").build(certain, Limits(2, 6))
    insertion = HeapBuilder(ALL, ties="insertion").build(certain, Limits(2, 6))
    # The menu of the root is (1, 0): rank tuples (0), (0, 0), (0, 1), (1), ...
    assert list(paths(tuples))[:4] == [(1,), (1, 0), (1, 1), (0,)]
    assert list(paths(insertion))[:4] == [(1,), (1, 0), (0,), (1, 1)]
    with pytest.raises(ValueError, match="tie rule"):
        HeapBuilder(ALL, ties="depth")


@pytest.mark.parametrize("scoring,calls", [("conditional", 6), ("marginal", 3)])
def test_one_correction_per_popped_node_with_a_path_dependent_scorer(scoring, calls):
    made, seen = scorer(scoring, 4, 3, 6), []
    score = made.score

    def counted(state, depth):
        rows = score(state, depth)
        seen.append(len(rows))
        return rows

    made.score = counted
    HeapBuilder(ALL).build(made, Limits(3, 6))
    # The root and every popped node but the last may expand; nodes at the depth limit do not.
    assert seen == [1] * len(seen) and 0 < len(seen) <= calls
