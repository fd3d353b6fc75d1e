"""Transitions from the best base tokens of each depth (TreeFlash)."""

import pytest
import torch
from tree_support import ALL, every_path, paths

from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.drafters.heads.swiglu import SwiGLUHead
from dartree_exp.interfaces import Block, Limits
from dartree_exp.trees.conditional import ConditionalScorer
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.lattice import LatticeScorer

D, V, H = 4, 9, 6


def block(seed, ids=None, size=V):
    draws = torch.Generator().manual_seed(seed)
    hidden = torch.randn(D, H, generator=draws)
    return Block(hidden, 2 * torch.randn(D, size, generator=draws), ids)


def head(kind, ids=None, total=V):
    torch.manual_seed(3)
    made = SwiGLUHead(H, 5) if kind == "swiglu" else MarkovHead(H, total, 4)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_()
    tables = torch.randn(total, H), ids, torch.randn(total, H)
    return made.requires_grad_(False).bind(*tables)


@pytest.mark.parametrize("kind", ["swiglu", "markov"])
@pytest.mark.parametrize("ids", [None, torch.tensor([0, 3, 4, 8, 11])])
def test_rows_after_the_best_tokens_are_the_conditional_ones(kind, ids):
    """The others have no children."""
    total = V if ids is None else 12
    size = V if ids is None else len(ids)
    made, one = head(kind, ids, total), block(1, ids, size)
    lattice = LatticeScorer(one, 7, made, 3)
    whole = ConditionalScorer(one, 7, made, "all", "vocab")
    assert torch.allclose(lattice.score(lattice.start(), 1), whole.score(whole.start(), 1))
    only, tokens = torch.zeros(size, dtype=torch.long), lattice.table.column_ids
    mine = lattice.score(lattice.advance(lattice.start(), 1, only, tokens), 2)
    theirs = whole.score(whole.advance(whole.start(), 1, only, tokens), 2)
    best = one.logits[0].topk(3).indices
    assert torch.allclose(mine[best], theirs[best], atol=1e-5)
    others = torch.ones(size, dtype=torch.bool).index_fill(0, best, False)
    assert (mine[others] == -torch.inf).all() and others.sum() == size - 3


@pytest.mark.parametrize("kind", ["swiglu", "markov"])
@pytest.mark.parametrize("budget", [1, 6, 25])
def test_its_heap_is_brute_force_over_the_paths_that_exist(kind, budget):
    lattice = LatticeScorer(block(2), 7, head(kind), 2)
    tree = HeapBuilder(ALL).build(lattice, Limits(3, budget)).validate(budget)
    alive = {p: s for p, s in every_path(lattice, 3).items() if s > -torch.inf}
    assert len(alive) == V + 2 * V + 4 * V
    best = sorted(alive.items(), key=lambda item: -item[1])[:budget]
    assert list(paths(tree)) == [path for path, _ in best]


def test_a_dead_end_is_not_filled_up():
    """With one token per depth that has children, at most D * V nodes exist."""
    lattice = LatticeScorer(block(2), 7, head("markov"), 1)
    tree = HeapBuilder(ALL).build(lattice, Limits(D, 1000)).validate()
    assert tree.num_nodes == D * V


def test_heads_that_read_the_whole_path_are_refused():
    gru = GRUHead(H, V, 4, 4, 0).bind(torch.randn(V, H))
    with pytest.raises(ValueError, match="GRUHead"):
        LatticeScorer(block(1), 7, gru, 3)
    with pytest.raises(ValueError, match="candidates=all"):
        LatticeScorer(block(1), 7, head("markov"), "all")


def test_a_nan_of_the_head_is_named():
    made = head("swiglu")
    made.down_proj.weight[0, 0] = torch.nan
    lattice = LatticeScorer(block(1), 7, made, 3)
    assert bool(lattice.finite())
    lattice.score(lattice.start(), 1)
    assert not bool(lattice.finite()) and "SwiGLUHead" in lattice.fault(0)
