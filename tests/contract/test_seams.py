"""What each miniature client of `clients.py` shows about its seam, beside passing the contract."""

from dataclasses import replace

import pytest
import torch
from clients import CLIENTS, CostReading, cheap
from contract_support import DRAFTING, PROMPT, shared_out

from dartree_exp.budgets.cost import CostCurve
from dartree_exp.decode import Request, speculate_all
from dartree_exp.engines.eager import EagerEngine
from dartree_exp.metrics.clock import StageClock
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

OTHER = [7, 5, 11, 2, 40]
REQUESTS = [
    Request(PROMPT, Sampler(sample_id="a"), StopRule(18)),
    Request(OTHER, Sampler(sample_id="b"), StopRule(7)),
]


def trace(decoded):
    return [(r.accepted_tokens, r.bonus, r.start, r.tree.num_nodes) for r in decoded.rounds]


@pytest.mark.parametrize("method,temperature", shared_out([0.0, 1.0]))
def test_two_requests_of_different_length_in_one_loop(make_case, method, temperature):
    """Each gets plain decoding's ids, by the same rounds as alone."""
    case = make_case(method, dtype=torch.float64)
    requests = [replace(r, sampler=replace(r.sampler, temperature=temperature)) for r in REQUESTS]
    together = speculate_all(case.target, case.method, requests, StageClock())
    for request, decoded in zip(requests, together, strict=True):
        prompt, cap = list(request.prompt), request.rule.max_new_tokens
        alone = case.drafted(prompt, cap=cap, sampler=request.sampler)
        assert decoded.ids == case.plain(prompt, cap=cap, sampler=request.sampler).ids
        assert trace(decoded) == trace(alone)
        for r in decoded.rounds:
            r.tree.validate(16)


@pytest.mark.parametrize("method", ["dartree_dspark", "rnn-heap"])
def test_requests_whose_trees_are_cut_differently(make_case, method):
    """Padding of a smaller tree is never taken for a node of it."""
    case = make_case(method, "budget=confidence", "budget.threshold=0.5", dtype=torch.float64)
    together = speculate_all(case.target, case.method, REQUESTS, StageClock())
    sizes = set()
    for request, decoded in zip(REQUESTS, together, strict=True):
        prompt, cap = list(request.prompt), request.rule.max_new_tokens
        assert trace(decoded) == trace(case.drafted(prompt, cap=cap, sampler=request.sampler))
        sizes |= {r.tree.num_nodes for r in decoded.rounds}
    assert len(sizes) > 1


def test_requests_of_one_loop_may_be_drawn_differently(make_case):
    case = make_case("dartree_pruned", dtype=torch.float64)
    samplers = [Sampler(), Sampler(1.0, top_k=5, sample_id="b"), Sampler(0.7, seed=2)]
    requests = [Request(PROMPT, sampler, StopRule(12)) for sampler in samplers]
    for request, decoded in zip(
        requests, speculate_all(case.target, case.method, requests, StageClock()), strict=True
    ):
        assert decoded.ids == case.plain(cap=12, sampler=request.sampler).ids


def test_control_a_request_that_reads_its_neighbours_start_is_caught(make_case, monkeypatch):
    right = EagerEngine.rows

    def careless(self, tree, probes):
        rows = right(self, tree, probes)
        return replace(rows, positions=rows.positions[:1].expand_as(rows.positions))

    case = make_case("dartree_pruned", dtype=torch.float64)
    monkeypatch.setattr(EagerEngine, "rows", careless)
    together = speculate_all(case.target, case.method, REQUESTS, StageClock())
    assert together[0].ids == case.plain(PROMPT, cap=18).ids
    assert together[1].ids != case.plain(OTHER, cap=7).ids


def test_forwards_within_the_build_are_draft_time(make_case):
    class Ticks:
        """A clock that only the drafter's second forward advances."""

        now = 0

    case, ticks = make_case("draft_model"), Ticks()
    step = case.method.drafter.lm.step

    def slow(*arguments):
        ticks.now += 1000
        return step(*arguments)

    case.method.drafter.lm.step = slow
    clock = StageClock(now=lambda: ticks.now)
    (decoded,) = speculate_all(case.target, case.method, REQUESTS[:1], clock)
    assert decoded.time["draft"] > 0 and decoded.time["build"] == 0


def test_probes_are_read_and_change_nothing(make_case):
    seen = []
    case = make_case("probing drafter")
    opened = case.method.drafter.open

    def watched(opening):
        session = opened(opening)
        seen.append(session)
        return session

    case.method.drafter.open = watched
    decoded = case.drafted(cap=12)
    assert decoded.ids == case.plain(cap=12).ids
    assert seen[0].guesses.abs().sum() > 0


@pytest.mark.parametrize(
    "curve,sizes",
    [({1: 1.0, 65: 1.0 + 1e-9}, {16}), ({1: 1.0, 2: 9.0}, {0}), ({1: 1.0, 5: 1.02, 6: 9.0}, {4})],
)
def test_a_policy_reads_what_rows_cost(make_case, curve, sizes):
    case = make_case("cost-reading policy")
    case.method = replace(case.method, cost=CostCurve(curve))
    decoded = case.drafted()
    assert {r.tree.num_nodes for r in decoded.rounds} == sizes
    assert decoded.ids == case.plain().ids


def test_a_policy_asks_for_more_depths(make_case):
    case = make_case("cost-reading policy")
    deepest = {int(r.tree.depths.max()) for r in case.drafted(cap=40).rounds}
    assert max(deepest) > 2
    case.method = replace(case.method, policy=Stubborn())
    assert {int(r.tree.depths.max()) for r in case.drafted(cap=40).rounds} == {2}


class Stubborn(CostReading):
    """Control: never extends."""

    def plan(self, view, scorer):
        return view.limits


def test_every_client_is_in_the_contract():
    assert set(CLIENTS) <= set(DRAFTING) and cheap(1) < cheap(2)


def test_a_commit_holds_ids_and_final_hidden_states_of_its_rows(make_case):
    """The hidden state of the last row says the root, and the ids are the text."""
    case, commits = make_case("dartree_pruned", dtype=torch.float64), []
    opened = case.method.drafter.open

    def watched(opening):
        session = opened(opening)
        draft = session.draft
        session.draft = lambda commit, draws: commits.append(commit) or draft(commit, draws)
        return session

    case.method.drafter.open = watched
    decoded = case.drafted(cap=20)
    text = [*PROMPT, *decoded.ids]
    for commit in commits:
        (start,), (root,), (length,) = commit.start, commit.roots, commit.lengths
        assert commit.ids[0].tolist() == text[start - length : start]
        said = case.target.lm_head_weight @ commit.hidden[0, length - 1]
        assert int(said.argmax()) == root == text[start]
    assert len(commits) == len(decoded.rounds) > 2
