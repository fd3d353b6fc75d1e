"""What must hold of every round, object and cache, whatever the method."""

import pytest
import torch
from contract_support import DRAFTING, MAIN, POLICIES, PROMPT, SCORERS, every_id, names, shared_out

from dartree_exp.engines.target import Target
from dartree_exp.verify.finite import NonFiniteLogitsError

EDGES = {
    "more candidates than ids": ("tree.candidates=1000", "tree.normalise=vocab"),
    "all ids": ("tree.candidates=all",),
    "one candidate": ("tree.candidates=1",),
    "budget beyond the supertree": ("tree.budget=5000", "tree.depth=2", "tree.candidates=4"),
    "budget 1": ("tree.budget=1",),
    "one level": ("tree.depth=1",),
}


def trace(decoded):
    return [(r.accepted_tokens, r.bonus, r.start) for r in decoded.rounds]


@pytest.mark.parametrize("method", DRAFTING)
def test_trees_are_valid_and_within_budget(make_case, method):
    case = make_case(method, "tree.budget=20")
    rounds = case.drafted().rounds
    for r in rounds:
        r.tree.validate(20)
        assert int(r.tree.depths.max()) <= case.method.depth
    assert rounds


@pytest.mark.parametrize("method,edge", shared_out(list(EDGES)))
def test_edges(make_case, method, edge):
    settings = (every_id(method),) if edge == "all ids" else EDGES[edge]
    case = make_case(method, *settings)
    drafted = case.drafted(cap=12)
    assert drafted.ids == case.plain(cap=12).ids
    for r in drafted.rounds:
        r.tree.validate(case.method.budget)


@pytest.mark.parametrize("method", MAIN)
def test_budget_zero_is_plain_decoding_through_the_loop(make_case, method):
    case = make_case(method, "tree.budget=0")
    drafted = case.drafted(cap=8)
    assert drafted.ids == case.plain(cap=8).ids
    assert [r.tokens_advanced for r in drafted.rounds] == [1] * 7
    assert {r.tree.num_nodes for r in drafted.rounds} == {0}


WIDTH_ONE = {
    "pruned": ("tree.width=1", "tree.beta=0"),
    "fixed": ("tree.budget=6",),
    "pool": ("tree.width=1", "tree.children=1"),
    "frontier": ("tree.width=1", "tree.children=1"),
}


@pytest.mark.parametrize("scorer", SCORERS)
def test_width_one_equals_the_chain(make_case, scorer):
    common = (
        every_id(scorer),
        "tree.normalise=vocab",
        "tree.candidates_follow_budget=false",
        "tree.latent=summed",
        "tree.budget=64",
    )

    def traced(builder, *knobs):
        return trace(make_case(names(scorer, builder)[0], *common, *knobs).drafted(cap=40))

    chain = traced("chain")
    for builder, knobs in WIDTH_ONE.items():
        assert traced(builder, *knobs) == chain, builder


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_frontier_as_wide_as_the_budget_equals_the_heap(make_case, scorer):
    knobs = (
        every_id(scorer),
        "tree.normalise=vocab",
        "tree.children=4",
        "tree.child_order=corrected",
    )
    common = (*knobs, "tree.candidates_follow_budget=false")
    heap = trace(make_case(names(scorer, "heap")[0], *common).drafted(cap=40))
    assert trace(make_case(names(scorer, "frontier")[0], *common).drafted(cap=40)) == heap
    # Control: one node per depth is another tree.
    narrow = make_case(names(scorer, "frontier")[0], *common, "tree.width=1")
    assert trace(narrow.drafted(cap=40)) != heap


@pytest.mark.parametrize("method", ["dspark", "dartree_dspark", "rnn-heap"])
def test_doubtful_drafts_are_left_out_and_ids_stay(make_case, method):
    """The confidence budget verifies less, down to plain steps, and changes no id."""
    whole = make_case(method)
    plain, sizes = whole.plain(cap=30).ids, []
    for threshold in (0, 0.4, 0.5, 0.6, 1):
        drafted = make_case(method, "budget=confidence", f"budget.threshold={threshold}").drafted(
            cap=30
        )
        assert drafted.ids == plain
        for r in drafted.rounds:
            r.tree.validate(16)
        sizes.append(sum(r.tree.num_nodes for r in drafted.rounds) / len(drafted.rounds))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[2] > sizes[-1] == 0
    assert sizes[0] == sum(r.tree.num_nodes for r in whole.drafted(cap=30).rounds) / len(
        whole.drafted(cap=30).rounds
    )


def test_static_chain_equals_the_conditional_chain(make_case):
    """On the greedy chain itself both scorers read the same prefix."""
    static = make_case("domino", "tree.scoring=static").drafted(cap=40)
    assert trace(static) == trace(make_case("domino").drafted(cap=40))


@pytest.mark.parametrize("method", MAIN)
def test_a_reused_object_equals_a_fresh_one(make_case, method):
    case = make_case(method)
    first = trace(case.drafted())
    case.drafted(prompt=[7, 5, 11], cap=15)
    assert trace(case.drafted()) == first == trace(make_case(method).drafted())


@pytest.mark.parametrize("method", MAIN)
def test_the_cache_after_commits_equals_a_fresh_prefill(make_case, method, monkeypatch):
    made = []
    right = Target.new_cache
    monkeypatch.setattr(
        Target, "new_cache", lambda self, n: made.append(right(self, n)) or made[-1]
    )
    case = make_case(method, dtype=torch.float64)
    drafted = case.drafted(cap=30)
    used = made[0]
    monkeypatch.undo()
    committed = [
        drafted.ids[0],
        *(t for r in drafted.rounds for t in (*r.accepted_tokens, r.bonus)),
    ]
    text = PROMPT + committed[:-1]  # the last bonus token is the next root, not in the cache yet
    fresh = case.target.new_cache(len(text))
    case.target.prefill(text, fresh)
    n = fresh.length
    assert n == used.length
    for rows, expected in zip(used.rows(), fresh.rows(), strict=True):
        assert (rows - expected).abs().max() < 1e-10


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_target_logits_are_named(make_case, monkeypatch, bad):
    case = make_case("dartree_pruned")
    right = Target.verify
    calls = []

    def poisoned(self, *args, **kwargs):
        out = right(self, *args, **kwargs)
        calls.append(1)
        if len(calls) == 3:
            out.logits[0, 5] = bad
        return out

    monkeypatch.setattr(Target, "verify", poisoned)
    with pytest.raises(NonFiniteLogitsError, match=r"target logits: 1 of .*round 2"):
        case.drafted(cap=40)


def test_non_finite_draft_logits_are_named(make_case, monkeypatch):
    case = make_case("dartree_pruned")
    session = case.drafter.session(PROMPT).__class__
    right = session.propose

    def poisoned(self, features, root, start):
        block = right(self, features, root, start)
        block.logits[2, 7] = float("nan")
        return block

    monkeypatch.setattr(session, "propose", poisoned)
    with pytest.raises(NonFiniteLogitsError, match=r"draft logits: 1 of .*round 0"):
        case.drafted()


def test_stage_times_add_up(make_case):
    time = make_case("dartree_pruned").drafted().time
    stages = [time[s] for s in ("draft", "build", "mask", "verify", "commit", "other")]
    assert sum(stages) == pytest.approx(time["decode"], rel=1e-6)
    assert all(s >= 0 for s in stages)


@pytest.mark.parametrize("method", POLICIES)
def test_a_policy_repeats_to_the_node(make_case, method):
    """With given costs: a reused policy decides as a new one, whatever was decoded in between."""
    used = make_case(method)
    first = [r.tree.tokens.tolist() for r in used.drafted(cap=40).rounds]
    used.drafted(prompt=[7, 5, 11, 2, 40], cap=30)
    again = [r.tree.tokens.tolist() for r in used.drafted(cap=40).rounds]
    assert first == again
    new = [r.tree.tokens.tolist() for r in make_case(method).drafted(cap=40).rounds]
    assert first == new and len({len(tree) for tree in new}) > 1


def test_a_request_that_rests_makes_plain_steps_and_drafts_again_with_its_whole_context(make_case):
    """The drafter of these tests checks that it is given the features of every token once."""
    case = make_case("cost_aware that rests")
    drafted = case.drafted(cap=60)
    assert drafted.ids == case.plain(cap=60).ids
    sizes = [r.tree.num_nodes for r in drafted.rounds]
    resting = [size == 0 for size in sizes]
    assert resting[:2] == [False, True] and sum(resting) > 20
    assert not all(resting[2:]), "a probe follows the rest"
