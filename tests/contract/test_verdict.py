"""With the library's attention in bfloat16: every method passes, and each of three faults is called
wrong.
"""

from dataclasses import replace

import pytest
import torch
from contract_support import DRAFTING

from dartree_exp.config.methods import known_methods
from dartree_exp.engines.target import Target
from dartree_exp.verify.exact import ExactMatch
from dartree_exp.verify.lossless import judge
from dartree_exp.verify.rows import row_difference
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from wide_target import PROMPT, ROWS, wide_target

CAP = 40
RULE = StopRule(CAP)
SAMPLERS = [Sampler(), Sampler(0.8, top_k=12, seed=4, sample_id="b")]


@pytest.fixture(scope="module")
def rounding_target():
    target = wide_target("llama")
    target.row_invariant = False
    return target, 2 * row_difference(target, PROMPT, ROWS)


def verdicts(make_case, rounding_target, method, rule=RULE, **drafted_rule):
    """Of each sampler; the method may be given another rule than the one it is judged by."""
    target, tolerance = rounding_target
    case = make_case(method, target=target)
    for sampler in SAMPLERS:
        plain = case.plain_again(PROMPT, CAP, sampler, eos_ids=rule.eos_ids)
        drafted = case.drafted(PROMPT, CAP, sampler, **{"eos_ids": rule.eos_ids, **drafted_rule})
        yield judge(target, PROMPT, drafted.ids, plain.ids, sampler, rule, tolerance)


@pytest.mark.parametrize("method", [name for name in known_methods() if name in DRAFTING])
def test_rounding_is_no_fault(make_case, rounding_target, method):
    found = list(verdicts(make_case, rounding_target, method))
    assert {v.verdict for v in found} <= {"exact", "near_tie"}, found


def test_control_the_second_best_token_at_one_position_is_wrong(
    make_case, rounding_target, monkeypatch
):
    right, changed = ExactMatch.__call__, []

    def careless(self, tree, logits, draws, healthy=None):
        accepted = right(self, tree, logits, draws, healthy)
        (path,), (bonus,), logits = accepted.paths, accepted.bonus, logits[0]
        sampler, position = draws._samplers[0], draws.start[0] + len(path)
        scores = sampler.scores(logits[path[-1]], position).masked_fill(
            ~sampler.kept(logits[path[-1]]), -torch.inf
        )
        values, tokens = scores.topk(2)
        far = values[0] - values[1] > 1.5 * rounding_target[1] / (
            1 if sampler.greedy else sampler.temperature
        )
        if far and position > len(PROMPT) + 4 and sampler not in changed:
            changed.append(sampler)
            bonus = int(tokens[1])
        return replace(accepted, bonus=(bonus,))

    monkeypatch.setattr(ExactMatch, "__call__", careless)
    found = list(verdicts(make_case, rounding_target, "dartree_pruned"))
    assert changed == SAMPLERS, "no position had a second best beyond the tolerance"
    assert [v.verdict for v in found] == ["wrong", "wrong"]


def test_control_a_wrong_mask_is_wrong(make_case, rounding_target, monkeypatch):
    right = Target.mask
    monkeypatch.setattr(Target, "mask", lambda *arguments: torch.zeros_like(right(*arguments)))
    assert [v.verdict for v in verdicts(make_case, rounding_target, "dartree_pruned")] == [
        "wrong",
        "wrong",
    ]


def test_control_a_dropped_stop_is_wrong(make_case, rounding_target):
    target, _ = rounding_target
    case = make_case("dartree_pruned", target=target)
    ids = case.plain_again(PROMPT, CAP, SAMPLERS[0]).ids
    rule = StopRule(CAP, eos_ids=frozenset({ids[8]}))
    found = next(verdicts(make_case, rounding_target, "dartree_pruned", rule, eos_ids=frozenset()))
    assert found.verdict == "wrong" and "continues" in found.detail["reason"]
