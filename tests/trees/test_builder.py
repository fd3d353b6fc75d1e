"""From configuration to builder."""

from dataclasses import dataclass

import pytest
from tree_support import paths, scorer

from dartree_exp.config import compose
from dartree_exp.errors import ConfigError
from dartree_exp.interfaces import Limits
from dartree_exp.trees.builder import largest_tree, make_builder
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.pool import FrontierBuilder, PoolBuilder
from dartree_exp.trees.rank_tree import RankTreeBuilder
from dartree_exp.trees.sampled import SampledBuilder
from dartree_exp.trees.spec import TREES
from dartree_exp.verify.sampling import RoundDraws, Sampler

DRAWS = RoundDraws([Sampler(1.0)], (5,))


@dataclass
class Tree:
    """The keys of `tree` that builders read."""

    name: str
    scoring: str | None = "conditional"
    width: int | None = 3
    beta: float = -0.2
    children: int | None = None
    child_order: str = "base"
    narrow_by_budget: bool = False
    paths: str = "smollm2_135m_63"
    draft_temperature: float | None = None
    expansion: str = "best"


KINDS = {
    "chain": ChainBuilder,
    "heap": HeapBuilder,
    "fixed": FixedBuilder,
    "pruned": PrunedBuilder,
    "pool": PoolBuilder,
    "frontier": FrontierBuilder,
    "static": RankTreeBuilder,
    "sampled": SampledBuilder,
}


def test_every_tree_of_the_schema_has_a_builder():
    assert set(KINDS) == set(TREES)


@pytest.mark.parametrize("name,kind", KINDS.items())
def test_names(name, kind):
    made = make_builder(Tree(name))
    builder = getattr(made, "builder", made)  # behind `Possible`
    assert isinstance(builder, kind)
    builder.build(scorer("conditional", 0, 3, 6), Limits(3, 5), DRAWS).validate(5)


def test_knobs_reach_the_builder():
    made = scorer("conditional", 0, 3, 6)
    wide = make_builder(Tree("pruned", width=6)).build(made, Limits(3, 8))
    assert wide.supertree_size == 18
    assert (
        make_builder(Tree("pruned", width=6, children=1)).build(made, Limits(3, 8)).supertree_size
        == 3
    )
    assert (
        make_builder(Tree("pruned", width=6, narrow_by_budget=True))
        .build(made, Limits(3, 2))
        .supertree_size
        == 6
    )
    shallow = make_builder(Tree("pruned", width=6, beta=-9.0)).build(made, Limits(3, 8))
    assert paths(shallow).keys() != paths(wide).keys()
    steep = make_builder(Tree("heap", beta=-9.0)).build(made, Limits(3, 8))
    assert (
        paths(steep).keys()
        != paths(make_builder(Tree("heap", beta=0.0)).build(made, Limits(3, 8))).keys()
    )
    assert (
        make_builder(Tree("pruned", width=None)).build(made, Limits(3, 5)).supertree_size == 15
    )  # W = B
    assert (
        make_builder(Tree("pool", width=2, children=3)).build(made, Limits(3, 8)).supertree_size
        == 3 + 6 + 6
    )
    assert (
        make_builder(Tree("frontier", width=None, children=3))
        .build(made, Limits(3, 4))
        .supertree_size
        == 3 + 9 + 12
    )


@pytest.mark.parametrize("name", TREES)
def test_no_tree_is_larger_than_the_cache_allows_for(name):
    made = scorer("conditional", 0, 3, 6)
    for budget in (0, 1, 2, 5, 9, 40, 500):
        for children, width in ((None, 3), (2, 1), (1, 4), (None, None)):
            tree = compose(
                [
                    f"tree={name}",
                    f"tree.budget={budget}",
                    "tree.candidates=6",
                    "tree.narrow_by_budget=false",
                ]
            ).tree
            tree.children, tree.width = children, width
            built = make_builder(tree).build(made, Limits(3, budget), DRAWS)
            assert built.num_nodes <= largest_tree(tree, 3, budget) <= budget
            if (
                name == "pruned" and children is None and width is not None
            ):  # then it is the largest there is
                assert built.num_nodes == largest_tree(tree, 3, budget)


def test_the_cache_is_sized_by_the_tree_not_by_the_budget():
    def most(*overrides):
        return largest_tree(compose(["tree.budget=10000", *overrides]).tree, 15, 10000)

    assert most("tree=chain") == 15
    assert most("tree=pruned", "tree.width=12") == 180
    assert most("tree=pruned", "tree.width=12", "tree.candidates=2") == 2 + 4 + 8 + 12 * 12
    assert (
        most("tree=heap") == most("tree=pool") == most("tree=heap", "tree.candidates=all") == 10000
    )
    assert most("method=ddtree", "tree.candidates_follow_budget=true", "tree.children=1") == 15


BAD = [
    {"name": "poll"},
    {"name": "pool", "width": 0},
    {"name": "frontier", "children": 0},
    {"name": "pruned", "width": 0},
    {"name": "pruned", "beta": 0.5},
    {"name": "heap", "beta": 0.5},
    {"name": "heap", "child_order": "x"},
]


@pytest.mark.parametrize("kwargs", BAD)
def test_refusals(kwargs):
    with pytest.raises((ValueError, ConfigError)):
        make_builder(Tree(**kwargs))
