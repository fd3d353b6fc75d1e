"""`tree.coupled=true` changes which drafts are made and no emitted id, with every scorer and every
builder of best drafts. Greedy targets have no noise to couple to.
"""

from dataclasses import replace

import pytest
import torch
from contract_support import PROMPT, SCORERS, names

from dartree_exp.decode import Request, speculate_all
from dartree_exp.drafters.lm.session import LmDrafter
from dartree_exp.metrics.clock import StageClock
from dartree_exp.trees.spec import TREES
from dartree_exp.verify.sampling import RoundDraws, Sampler
from dartree_exp.verify.stopping import StopRule

BUILDERS = [name for name, spec in TREES.items() if spec.proposals == ("best",)]
SAMPLED = Sampler(1.0, seed=3, sample_id="a"), Sampler(0.7, top_k=12, seed=4, sample_id="b")
EVERY_BUILDER = "marginal", "gru", "mixture"
"""One scorer of each kind: uncorrected, corrected, with noise added to its rows."""
OWN = "eagle3", "eagle-chain", "lm-heap", "ngram", "medusa-heap"


def tokens(decoded):
    return [r.tree.tokens.tolist() for r in decoded.rounds]


@pytest.mark.parametrize("scorer", SCORERS)
def test_ids_equal_plain_decoding_and_drafts_differ(make_case, scorer):
    for builder in BUILDERS if scorer in EVERY_BUILDER else ("chain", "pruned"):
        name = names(scorer, builder)[0]
        coupled, usual = make_case(name, "tree.coupled=true"), make_case(name)
        assert tokens(coupled.drafted()) == tokens(usual.drafted()), builder
        for sampler in SAMPLED:
            drafted = coupled.drafted(sampler=sampler)
            assert drafted.ids == coupled.plain(sampler=sampler).ids, builder
            assert tokens(drafted) != tokens(usual.drafted(sampler=sampler)), builder
            for r in drafted.rounds:
                r.tree.validate(coupled.method.budget)


@pytest.mark.parametrize("name", OWN)
def test_drafters_with_scorers_of_their_own(make_case, name):
    coupled = make_case(name, "tree.coupled=true")
    for sampler in SAMPLED:
        assert coupled.drafted(sampler=sampler).ids == coupled.plain(sampler=sampler).ids


@pytest.mark.parametrize("method", ["dartree_pruned", "dominotree", "dflash", "dblast_tree"])
def test_requests_of_one_loop_are_coupled_each_with_its_own_draw(make_case, method):
    case = make_case(method, "tree.coupled=true", dtype=torch.float64)
    rule, samplers = StopRule(16, frozenset()), (*SAMPLED, Sampler())
    requests = [Request(PROMPT, sampler, rule) for sampler in samplers]
    together = speculate_all(case.target, case.method, requests, StageClock())
    for found, sampler in zip(together, samplers, strict=True):
        alone = case.drafted(sampler=sampler, cap=16)
        assert found.ids == alone.ids == case.plain(sampler=sampler, cap=16).ids
        assert [r.accepted_tokens for r in found.rounds] == [
            r.accepted_tokens for r in alone.rounds
        ]


def test_a_drafter_that_is_the_target_is_always_right(make_case, monkeypatch):
    """Control: with noise of another seed it is not. Ids stay in both cases, because the verifier
    compares with the target's own draw.
    """
    case = make_case("draft_model", "tree.coupled=true")
    case.method = replace(case.method, drafter=LmDrafter(case.target, case.target, 4))
    plain = case.plain(sampler=SAMPLED[0], cap=41).ids

    def advanced():
        decoded = case.drafted(sampler=SAMPLED[0], cap=41)
        assert decoded.ids == plain
        return [r.tokens_advanced for r in decoded.rounds]

    assert advanced() == [5] * 8
    own = RoundDraws.target_noise

    def other(self, depth, size):
        samplers = [replace(s, seed=s.seed + 1) for s in self._samplers]
        return own(RoundDraws(samplers, self.start, 0), depth, size)

    monkeypatch.setattr(RoundDraws, "target_noise", other)
    assert len(advanced()) > 12
