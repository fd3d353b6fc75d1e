"""Pool and frontier: what is kept, W = B against the heap, ties, ranks, constant work per depth."""

import pytest
import torch
from tree_support import ALL, Operations, Shapes, every_path, paths, scorer

from dartree_exp.interfaces import Block, Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.pool import FrontierBuilder, PoolBuilder
from dartree_exp.trees.scorer import make_scorer

SCORINGS = ("marginal", "static", "conditional")


def best_children(scores, parent, count):
    return sorted((p for p in scores if p[:-1] == parent), key=lambda p: -scores[p])[:count]


@pytest.mark.parametrize("scoring", SCORINGS)
def test_the_pool_holds_every_child_that_was_scored(scoring):
    made = scorer(scoring, 9, 3, 7)
    pool = PoolBuilder(3, 2).pool(made, Limits(3, 6)).validate()
    scores = every_path(made, 3)
    expected, frontier = [], [()]
    for _ in range(3):
        level = [child for parent in frontier for child in best_children(scores, parent, 3)]
        expected += level
        frontier = sorted(level, key=lambda p: -scores[p])[:2]
    assert list(paths(pool)) == expected

    tree = PoolBuilder(3, 2).build(made, Limits(3, 6)).validate(6)
    best = sorted(expected, key=lambda p: -scores[p])[:6]
    assert list(paths(tree)) == [path for path in expected if path in best]  # the pool's order
    assert tree.supertree_size == len(expected) == 3 + 6 + 6
    assert list(paths(FrontierBuilder(3, 2).build(made, Limits(3, 6)))) == best  # best first


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("seed", range(4))
def test_a_frontier_as_wide_as_the_budget_is_the_heap(scoring, seed):
    made = scorer(scoring, seed, 5, 8, prefix=seed % 2)
    for limit in (None, 3):
        heap = HeapBuilder(Children(limit, "corrected")).build(made, Limits(5, 10))
        tree = FrontierBuilder(limit, None).build(made, Limits(5, 10)).validate(10)
        assert list(paths(tree)) == list(paths(heap))  # in the same order, too
        assert torch.equal(tree.ranks, heap.ranks)
        assert paths(PoolBuilder(limit, 10).build(made, Limits(5, 10))).keys() == paths(heap).keys()


def test_a_narrow_frontier_is_not():
    # Control: one node expanded per depth misses nodes of the best-first tree.
    made = scorer("conditional", 0, 5, 8)
    heap = HeapBuilder(ALL).build(made, Limits(5, 10))
    assert paths(FrontierBuilder(None, 1).build(made, Limits(5, 10))).keys() != paths(heap).keys()


@pytest.mark.parametrize("scoring", SCORINGS)
def test_k_of_one_is_the_chain(scoring):
    made = scorer(scoring, 5, 6, 12, prefix=1)
    chain, tree = (
        ChainBuilder().build(made, Limits(6, 6)),
        PoolBuilder(1, 1).build(made, Limits(6, 9)),
    )
    for field in ("tokens", "parents", "depths", "scores", "ranks"):
        assert torch.equal(getattr(tree, field), getattr(chain, field)), field


@pytest.mark.parametrize("candidates", ["all", 4])
@pytest.mark.parametrize("scoring", SCORINGS)
def test_top_is_the_sorted_row(scoring, candidates):
    made = scorer(scoring, 2, 3, 9, candidates=candidates, columns=[1, 4, 5, 9, 12, 13, 17, 20, 21])
    state = made.advance(made.start(), 1, torch.tensor([0, 0]), torch.tensor([4, 20]))
    rows = made.score(state, 2)
    for count in (1, 3, 99):
        tokens, log_probs, ranks = made.top(state, 2, count)
        assert tokens.shape == log_probs.shape == ranks.shape == (2, min(count, rows.shape[1]))
        assert torch.equal(log_probs, rows.sort(dim=-1, descending=True).values[:, :count])
        assert torch.equal(rows.gather(1, ranks), log_probs)
        assert torch.equal(made.candidates(2)[ranks], tokens)
        for whole, column in zip(
            made.best(state, 2), (tokens[:, 0], log_probs[:, 0], ranks[:, 0]), strict=True
        ):
            assert torch.equal(whole, column)


class Levelling:
    """A head that corrects every base logit to 0, so that all children tie."""

    pure_draft_prefix_len = 0

    def start(self, root):
        return torch.zeros(1, 0)

    def prepare(self, block, candidate_ids):
        return -block.logits.gather(1, candidate_ids)

    def correction(self, prepared, state, depth):
        return prepared[depth - 1].expand(state.shape[0], -1)


@pytest.mark.parametrize("candidates,first", [("all", [0, 1, 2]), (4, [3, 5, 0])])
def test_tied_children_come_by_token_in_a_vocabulary_and_by_rank_in_a_menu(candidates, first):
    block = Block(torch.zeros(1, 1), torch.tensor([[3.0, 0.0, 1.0, 5.0, 2.0, 4.0]]), None)
    made = make_scorer(
        "conditional", block, Levelling(), 0, candidates=candidates, normalise="candidates"
    )
    assert made.top(made.start(), 1, 3)[0].tolist() == [first]


@pytest.mark.parametrize(
    "builder", [PoolBuilder(3, 2), FrontierBuilder(None, None), FrontierBuilder(2, 5)]
)
@pytest.mark.parametrize(
    "depths,candidates,budget", [(1, 4, 3), (3, 99, 7), (2, 3, 100), (3, 2, 0), (3, 1, 2)]
)
def test_edges(builder, depths, candidates, budget):
    made = scorer("conditional", 1, depths, 6, candidates=candidates, root=5)
    for limit in (depths, 1, 0, 99):
        tree = builder.build(made, Limits(limit, budget)).validate(budget)
        assert tree.tokens[0] == 5 and tree.depths.max() <= min(limit, depths)
        assert bool(tree.num_nodes) == bool(budget and limit)
    with pytest.raises(ValueError, match="negative"):
        builder.build(made, Limits(depths, -1))


def test_the_whole_pool_where_the_budget_allows():
    tree = (
        FrontierBuilder(None, None).build(scorer("marginal", 0, 2, 3), Limits(2, 100)).validate(100)
    )
    assert tree.num_nodes == 12


@pytest.mark.parametrize("kwargs", [{"children": 0, "width": 2}, {"children": 2, "width": 0}])
def test_nonsense_is_refused(kwargs):
    with pytest.raises(ValueError, match="= 0"):
        PoolBuilder(**kwargs)


def operations(builder, depths: int, budget: int, candidates=16) -> int:
    made = scorer("conditional", 1, depths, 40, candidates=candidates)
    builder.build(made, Limits(depths, budget))  # what is made once and kept does not count
    with Operations() as seen:
        builder.build(made, Limits(depths, budget))
    return seen.count.total()


@pytest.mark.parametrize("candidates", [16, "all"])
def test_constant_number_of_operations_per_depth_and_no_look_at_data(candidates):
    few, more, most = (operations(PoolBuilder(4, 4), depths, 9, candidates) for depths in (4, 5, 9))
    assert most - more == 4 * (more - few)
    assert more - few <= 60  # head included, views counted
    assert operations(PoolBuilder(8, 6), 9, 20, candidates) == most


@pytest.mark.parametrize("builder", [PoolBuilder(4, 3), FrontierBuilder(4, None)])
def test_a_tree_is_built_without_any_data(builder):
    assert builder.build(Shapes(), Limits(6, 10)).num_nodes == 10
