"""Invariants on random drafters, exact ties included."""

from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_support import drafter, paths

from dartree_exp.interfaces import Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.pool import FrontierBuilder, PoolBuilder
from dartree_exp.trees.scorer import make_scorer
from dartree_exp.trees.spec import CHILD_ORDERS, NORMALISATIONS, OWN, SCORERS

RANDOM = [n for n, spec in SCORERS.items() if n != OWN and not spec.last_token]


@st.composite
def cases(draw):
    depths, vocab = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    scoring, seed = draw(st.sampled_from(RANDOM)), draw(st.integers(0, 999))
    kind = "latent" if SCORERS[scoring].mixture else "gru"
    block, head = drafter(seed, depths, vocab, prefix=draw(st.integers(0, 2)), head_type=kind)
    if draw(st.booleans()):  # exact ties: few distinct logits, no correction
        block = type(block)(block.hidden, block.logits.round(), None)
        output = head._readout if kind == "latent" else head.embed_proj[2].weight
        output.zero_()
    if draw(st.booleans()):  # certainty: log-probabilities of exactly 0
        block.logits[:, 0] += 300
    scorer = partial(  # made in the test: the checks of shapes draw from `random`
        make_scorer,
        scoring,
        block,
        head,
        0,
        candidates=draw(st.one_of(st.just("all"), st.integers(1, 10))),
        normalise=draw(st.sampled_from(NORMALISATIONS)),
    )
    children = Children(
        draw(st.one_of(st.none(), st.integers(1, 9))),
        draw(st.sampled_from(CHILD_ORDERS)),
        draw(st.booleans()),
    )
    builder = draw(
        st.sampled_from(
            [
                ChainBuilder(),
                HeapBuilder(children),
                HeapBuilder(children, "rank_tuple"),
                FixedBuilder(children),
                PrunedBuilder(
                    children, draw(st.integers(1, 6)), draw(st.sampled_from([0.0, -0.2, -2.0]))
                ),
                PoolBuilder(children.limit, draw(st.integers(1, 6))),
                FrontierBuilder(children.limit, draw(st.one_of(st.none(), st.integers(1, 6)))),
            ]
        )
    )
    return scorer, builder, draw(st.integers(0, 6)), draw(st.integers(0, 40))


@settings(max_examples=120, deadline=None)
@given(cases())
def test_every_tree_is_a_tree(case):
    make, builder, limit, budget = case
    scorer = make()
    tree = builder.build(scorer, Limits(limit, budget)).validate(budget)
    assert tree.tokens.dtype == tree.parents.dtype == tree.depths.dtype == torch.int64
    assert tree.depths.max() <= min(limit, scorer.num_drafts)
    if min(limit, budget):
        assert tree.num_nodes >= 1
    for node in range(1, tree.num_nodes + 1):
        assert scorer.candidates(int(tree.depths[node]))[tree.ranks[node]] == tree.tokens[node]
    again = builder.build(scorer, Limits(limit, budget))
    assert paths(again) == paths(tree)
