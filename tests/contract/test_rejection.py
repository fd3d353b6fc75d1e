"""verify=rejection in the loop, with every scorer."""

from dataclasses import replace

import pytest
import torch
from contract_support import DRAFTING, PROMPT, SCORERS, names

from dartree_exp.decode import Request, speculate_all
from dartree_exp.metrics.clock import StageClock
from dartree_exp.verify.exact import ExactMatch
from dartree_exp.verify.rejection import RejectionSampling
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

SAMPLED = [name for scorer in SCORERS for name in names(scorer, "sampled")]


@pytest.fixture
def make_sampled(make_case):
    def make(method, *overrides, verify=None, **options):
        case = make_case(method, *overrides, **options)
        case.method = replace(case.method, verify=verify or RejectionSampling())
        return case

    return make


def trace(decoded):
    return [(r.accepted_tokens, r.bonus, r.start) for r in decoded.rounds]


@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("method", SAMPLED)
def test_a_greedy_target_gets_the_ids_and_rounds_of_exact_match(make_sampled, method, children):
    knob = f"tree.children={children}"
    drafted = make_sampled(method, knob).drafted(cap=30)
    exact = make_sampled(method, knob, verify=ExactMatch())
    assert drafted.ids == exact.plain(cap=30).ids
    assert trace(drafted) == trace(exact.drafted(cap=30))
    assert sum(r.tokens_advanced for r in drafted.rounds) > len(drafted.rounds)


@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("method", SAMPLED)
def test_sampled_rounds(make_sampled, method, children):
    """Valid trees that are proposed as they say; drafts are accepted; other ids than plain
    decoding's, the same in every run of one seed.
    """
    case = make_sampled(method, f"tree.children={children}", "tree.budget=20")
    sampler = Sampler(0.8, top_k=12, seed=4, sample_id="b")
    drafted = case.drafted(cap=40, sampler=sampler)
    for r in drafted.rounds:
        r.tree.validate(20)
        assert r.tree.proposal == ("sampled" if children == 1 else "distinct")
    assert sum(r.tokens_advanced for r in drafted.rounds) > len(drafted.rounds)
    assert drafted.ids != case.plain(cap=40, sampler=sampler).ids
    assert drafted.ids == case.drafted(cap=40, sampler=sampler).ids


@pytest.mark.parametrize("method", SAMPLED)
def test_requests_of_one_loop_get_what_they_get_alone(make_sampled, method):
    case = make_sampled(method, dtype=torch.float64)
    samplers = [Sampler(1.0, sample_id="a"), Sampler(), Sampler(0.7, top_p=0.9, seed=2)]
    requests = [Request(PROMPT[i:], s, StopRule(12 + i)) for i, s in enumerate(samplers)]
    together = speculate_all(case.target, case.method, requests, StageClock())
    for request, decoded in zip(requests, together, strict=True):
        cap = request.rule.max_new_tokens
        alone = case.drafted(list(request.prompt), cap=cap, sampler=request.sampler)
        assert trace(decoded) == trace(alone) and decoded.ids == alone.ids


def test_a_tree_of_the_likeliest_children_is_refused(make_sampled):
    assert "dartree_pruned" in DRAFTING
    with pytest.raises(ValueError, match=r"RejectionSampling.*'best'.*sampled, distinct"):
        make_sampled("dartree_pruned").drafted()


def test_a_budget_that_cuts_a_sampled_tree_is_refused(make_sampled):
    """The configuration refuses it first; here a policy is put in by hand."""
    cutting = make_sampled("markov-sampled", "budget=confidence", "budget.threshold=0.5")
    with pytest.raises(ValueError, match="this tree was cut"):
        cutting.drafted(cap=30, sampler=Sampler(1.0))
