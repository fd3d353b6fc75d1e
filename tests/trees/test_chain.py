"""The chain, and that a level-wise tree of width 1 is one."""

import pytest
import torch
from tree_support import ALL, scorer

from dartree_exp.interfaces import Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder


def test_chain_is_greedy_along_its_own_path():
    made = scorer("conditional", 11, 5, 9, prefix=1)
    tree = ChainBuilder().build(made, Limits(5, 5)).validate(5)
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3, 4] and tree.depths.tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    state, total = made.start(), 0.0
    for depth in range(1, 6):
        row = made.score(state, depth)[0]
        total += row.max().item()
        assert tree.tokens[depth] == made.candidates(depth)[row.argmax()]
        assert tree.ranks[depth] == row.argmax()
        assert tree.scores[depth].item() == pytest.approx(total, abs=1e-5)
        state = made.advance(state, depth, torch.tensor([0]), tree.tokens[depth : depth + 1])


@pytest.mark.parametrize(
    "limit,budget,length", [(5, 3, 3), (2, 8, 2), (9, 9, 5), (5, 0, 0), (1, 1, 1)]
)
def test_chain_length_is_the_smallest_limit(limit, budget, length):
    made = scorer("marginal", 0, 5, 6, root=8)
    tree = ChainBuilder().build(made, Limits(limit, budget)).validate(budget)
    assert tree.num_nodes == length and tree.tokens[0] == 8
    with pytest.raises(ValueError, match="negative"):
        ChainBuilder().build(scorer("marginal", 0, 5, 6), Limits(limit, -1))


@pytest.mark.parametrize("scoring", ["marginal", "static", "conditional"])
@pytest.mark.parametrize("seed", range(5))
def test_width_one_is_the_chain_for_all_candidates_and_enough_budget(scoring, seed):
    made = scorer(scoring, seed, 6, 12, prefix=1)
    chain = ChainBuilder().build(made, Limits(6, 6))
    for builder, budget in (
        (PrunedBuilder(ALL, 1, -0.2), 8),
        (PrunedBuilder(ALL, 1, 0.0), 6),
        (FixedBuilder(ALL), 6),
    ):
        tree = builder.build(made, Limits(6, budget))
        for field in ("tokens", "parents", "depths", "scores", "ranks"):
            assert torch.equal(getattr(tree, field), getattr(chain, field)), field


def test_width_one_with_few_candidates_is_another_path():
    # Control: K < V can hide the head's choice, so the equality above is not vacuous.
    full = ChainBuilder().build(scorer("conditional", 3, 6, 12), Limits(6, 6))
    narrow = PrunedBuilder(ALL, 1, 0.0).build(
        scorer("conditional", 3, 6, 12, candidates=2), Limits(6, 6)
    )
    assert not torch.equal(full.tokens, narrow.tokens)
