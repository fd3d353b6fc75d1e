"""Level-wise builders: schedules, Lemma 1, constant work per depth, no peeking at data."""

import pytest
import torch
from tree_support import ALL, Operations, Shapes, drafter, every_path, paths, scorer

from dartree_exp.interfaces import Limits
from dartree_exp.kernels import candidate_select
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.pool import FrontierBuilder, PoolBuilder
from dartree_exp.trees.scorer import make_scorer

NARROW = Children(narrow_by_budget=True)


@pytest.mark.parametrize(
    "depths,budget,count,widths",
    [
        (16, 64, 64, [4] * 16),
        (15, 50, 50, [4] * 5 + [3] * 10),
        (8, 5, 5, [1] * 5),
        (4, 1, 1, [1]),
        (3, 30, 2, [2, 4, 8]),  # few children: what shallow depths cannot use goes deeper
        (2, 100, 3, [3, 9]),
    ],
)
def test_fixed_schedule(depths, budget, count, widths):
    assert FixedBuilder(ALL).widths(depths, budget, count) == widths


def test_pruned_width_is_narrowed_by_the_budget_only_under_the_release_rule():
    assert PrunedBuilder(NARROW, 12, 0.0).widths(3, 6, NARROW.count(64, 6)) == [6] * 3
    assert PrunedBuilder(ALL, 12, 0.0).widths(3, 6, ALL.count(64, 6)) == [12] * 3


@pytest.mark.parametrize("kwargs", [{"beta": 0.1}, {"width": 0}])
def test_pruned_refuses_what_would_break_the_tree(kwargs):
    with pytest.raises(ValueError):
        PrunedBuilder(ALL, **{"width": 4, "beta": 0.0, **kwargs})


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("beta", [0.0, -0.2, -3.0])
def test_lemma_1_pruned_equals_best_first_on_the_supertree(scoring, beta):
    builder = PrunedBuilder(ALL, 4, beta)
    for seed in range(6):
        made = scorer(scoring, seed, 5, 8, prefix=seed % 2)
        supertree = builder.supertree(made, Limits(5, 9))
        parents, keys = (
            supertree.parents.tolist(),
            (supertree.scores + beta * supertree.depths).tolist(),
        )
        reached = {0}
        while len(reached) <= 9:  # best-first: the best node whose parent is already in
            open_nodes = [
                node for node in range(1, 21) if node not in reached and parents[node] in reached
            ]
            reached.add(max(open_nodes, key=keys.__getitem__))
        tree = builder.build(made, Limits(5, 9)).validate(9)
        names = list(paths(supertree))
        assert set(paths(tree)) == {names[node - 1] for node in reached - {0}}
        assert tree.supertree_size == supertree.num_nodes == 20


class OnlyThese:
    """The scores of a supertree's nodes; what it lacks cannot be reached. States are its node
    indices.
    """

    path_dependent = True
    root = torch.tensor(0)

    def __init__(self, tree) -> None:
        self.tree, self.num_drafts = tree, int(tree.depths.max())

    def start(self):
        return torch.tensor([0])

    def candidates(self, depth):
        return self.tree.tokens[self.tree.depths == depth].unique()

    def _child(self, state, depth):
        """Node below each state for each candidate, int64 [N, K]; 0: none."""
        tokens = self.candidates(depth)
        below = (self.tree.parents == state[:, None, None]) & (self.tree.tokens == tokens[:, None])
        return (below * torch.arange(len(self.tree.tokens))).sum(-1)

    def score(self, state, depth):
        child, scores = self._child(state, depth), self.tree.scores.double()
        return torch.where(child > 0, scores[child] - scores[state][:, None], -torch.inf)

    def advance(self, state, depth, parent, token):
        place = torch.searchsorted(self.candidates(depth), token)
        return self._child(state[parent], depth).gather(1, place[:, None])[:, 0]


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("beta", [0.0, -0.2, -3.0])
def test_lemma_1_the_heap_with_the_same_beta_prunes_the_same_supertree(scoring, beta):
    differ = []
    for seed in range(4):
        builder = PrunedBuilder(ALL, 4, beta)
        made = scorer(scoring, seed, 5, 8, prefix=seed % 2)
        supertree = builder.supertree(made, Limits(5, 9))
        heap = HeapBuilder(ALL, beta=beta).build(OnlyThese(supertree), Limits(5, 9)).validate(9)
        tree = builder.build(made, Limits(5, 9))
        assert paths(heap).keys() == paths(tree).keys()
        assert paths(heap) == pytest.approx(
            paths(tree), abs=1e-5
        )  # path scores are without the bonus
        # A supertree as wide as the budget holds what the heap would take of all there is.
        whole = HeapBuilder(ALL, beta=beta).build(made, Limits(5, 9))
        assert (
            paths(PrunedBuilder(ALL, 9, beta).build(made, Limits(5, 9))).keys()
            == paths(whole).keys()
        )
        differ.append(
            paths(whole).keys() != paths(HeapBuilder(ALL).build(made, Limits(5, 9))).keys()
        )
    assert any(differ) or beta > -1  # control: the heap does read beta


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("seed", range(4))
def test_width_of_the_budget_with_all_children_equals_the_heap(scoring, seed):
    made = scorer(scoring, seed, 5, 8)
    tree = PrunedBuilder(ALL, 10, 0.0).build(made, Limits(5, 10))
    heap = HeapBuilder(ALL).build(made, Limits(5, 10))
    assert paths(tree).keys() == paths(heap).keys()
    # Control: half the width loses nodes of the best-first tree for some drafters.
    narrow = [
        paths(PrunedBuilder(ALL, 2, 0.0).build(scorer(scoring, s, 5, 8), Limits(5, 10))).keys()
        != paths(HeapBuilder(ALL).build(scorer(scoring, s, 5, 8), Limits(5, 10))).keys()
        for s in range(4)
    ]
    assert any(narrow)


def test_supertree_keeps_the_best_of_each_depth():
    made = scorer("conditional", 9, 2, 6)
    tree = PrunedBuilder(ALL, 3, 0.0).supertree(made, Limits(2, 99)).validate()
    scores = every_path(made, 2)
    first = sorted((p for p in scores if len(p) == 1), key=lambda p: -scores[p])[:3]
    second = sorted(
        (p for p in scores if len(p) == 2 and p[:1] in first), key=lambda p: -scores[p]
    )[:3]
    assert list(paths(tree)) == first + second


@pytest.mark.parametrize(
    "builder", [FixedBuilder(NARROW), PrunedBuilder(NARROW, 3, -0.2), PrunedBuilder(ALL, 3, 0.0)]
)
@pytest.mark.parametrize(
    "depths,candidates,budget", [(1, 4, 3), (3, 99, 7), (2, 3, 100), (3, 2, 0), (3, 1, 2)]
)
def test_edges(builder, depths, candidates, budget):
    made = scorer("conditional", 1, depths, 6, candidates=candidates, root=5)
    for limit in (depths, 1, 99):
        tree = builder.build(made, Limits(limit, budget)).validate(budget)
        assert tree.tokens[0] == 5 and tree.depths.max() <= min(limit, depths)
        assert tree.num_nodes or not budget
    with pytest.raises(ValueError, match="negative"):
        builder.build(made, Limits(depths, -1))


def test_children_in_corrected_order():
    children = Children(limit=2, order="corrected")
    made = scorer("conditional", 6, 3, 8)
    tree = PrunedBuilder(children, 16, 0.0).build(made, Limits(3, 12))
    assert paths(tree).keys() == paths(HeapBuilder(children).build(made, Limits(3, 12))).keys()
    for node in range(1, tree.num_nodes + 1):
        assert tree.tokens[node] == made.candidates(int(tree.depths[node]))[tree.ranks[node]]
    assert (
        paths(tree).keys()
        != paths(PrunedBuilder(Children(limit=2), 16, 0.0).build(made, Limits(3, 12))).keys()
    )


def operations(builder, depths: int, candidates: int, budget: int) -> int:
    made = scorer("conditional", 1, depths, 40, candidates=candidates)
    # What is made once and kept does not count. On a CPU, a pruned tree's build stops early.
    builder.supertree(made, Limits(depths, budget))
    with Operations() as seen:
        builder.supertree(made, Limits(depths, budget))
    return seen.count.total()


def test_constant_number_of_operations_per_depth():
    few, more, most = (
        operations(PrunedBuilder(NARROW, 4, -0.2), depths, 16, 5) for depths in (4, 5, 9)
    )
    per_depth = more - few
    assert most - more == 4 * per_depth
    assert per_depth <= 40  # head included, views counted
    # Width, candidates and budget change sizes, not the number of operations.
    assert operations(PrunedBuilder(NARROW, 12, -0.2), 9, 30, 20) == most
    fixed = operations(FixedBuilder(NARROW), 4, 16, 8)
    assert operations(FixedBuilder(NARROW), 4, 30, 20) == fixed


def test_the_counter_sees_a_copy_to_the_host():
    # Control: the heap reads every menu, a check in the middle of a build would be seen as well.
    with pytest.raises(AssertionError, match="reads the device"), Operations():
        bool(torch.zeros(3).any())


@pytest.mark.parametrize(
    "builder",
    [
        FixedBuilder(ALL),
        PrunedBuilder(ALL, 4, -0.2),
        ChainBuilder(),
        PoolBuilder(3, 4),
        FrontierBuilder(3, None),
    ],
    ids=lambda builder: type(builder).__name__,
)
def test_tied_scores_cost_no_second_growth(builder):
    """bf16 logits tie at depth 1, which no head corrects; every depth is scored once all the
    same.
    """
    calls = []
    for seed in range(6):
        block, head = drafter(seed, 5, 200, prefix=1, scale=1.0)
        block.logits.copy_(block.logits.bfloat16())
        made = make_scorer("conditional", block, head, 0, candidates=64)
        rows = made.rows
        made.rows = lambda state, depth, rows=rows, seed=seed: (
            calls.append((seed, depth)) or rows(state, depth)
        )
        tree = builder.build(made, Limits(5, 10))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(candidate_select, "stable_topk", candidate_select._sorted_topk)
            for module in ("levelwise", "pool", "prune"):
                patch.setattr(
                    f"dartree_exp.trees.{module}.stable_topk", candidate_select._sorted_topk
                )
            made.rows = rows
            assert torch.equal(builder.build(made, Limits(5, 10)).tokens, tree.tokens)
    assert len(calls) == len(set(calls)) and {(seed, 1) for seed in range(6)} <= set(calls)


@pytest.mark.parametrize(
    "builder",
    [
        FixedBuilder(NARROW),
        PrunedBuilder(NARROW, 4, -0.2),
        PrunedBuilder(Children(3, "corrected"), 4, 0.0),
    ],
)
def test_a_tree_is_built_without_any_data(builder):
    tree = builder.build(Shapes(), Limits(6, 10))
    assert tree.tokens.device.type == "meta" and tree.num_nodes == 10
    with pytest.raises((RuntimeError, NotImplementedError)):
        HeapBuilder(ALL).build(Shapes(), Limits(6, 10))  # control: the heap needs data
