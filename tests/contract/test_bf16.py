"""In bfloat16 too every method emits plain decoding's ids, where the self-test says that rows have
the same bits.
"""

import pytest
from contract_support import DRAFTING

from dartree_exp.config.methods import known_methods
from dartree_exp.verify.sampling import Sampler
from wide_target import PROMPT, one_row_rule_off, row_invariant_target

SAMPLERS = [Sampler(), Sampler(0.8, top_k=12, seed=4, sample_id="b")]
CAP = 40
CONTROL = ("ddtree", "dartree_pruned", "domino", "pctree")


def differing(make_case, methods, target):
    """(method, sampler) whose ids are not plain decoding's; plain decoding is done afresh."""
    found = []
    for method in methods:
        case = make_case(method, target=target)
        for index, sampler in enumerate(SAMPLERS):
            prompt = [*PROMPT, 5 + index]
            if case.drafted(prompt, CAP, sampler).ids != case.plain_again(prompt, CAP, sampler).ids:
                found.append((method, index))
    return found


@pytest.mark.parametrize("engine", ["eager", "packed"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("method", [name for name in known_methods() if name in DRAFTING])
def test_ids_equal_plain_decoding_in_bf16(make_case, method, family, engine):
    assert differing(make_case, [method], row_invariant_target(family, engine)) == []


def test_control_the_librarys_attention_is_not_exact(make_case):
    target = row_invariant_target("llama")
    target.row_invariant = False
    try:
        assert differing(make_case, CONTROL, target)
    finally:
        target.row_invariant = True


def test_control_a_product_over_one_row_is_not_exact(make_case, monkeypatch):
    """float64 attention without the two-row rule."""
    target = row_invariant_target("llama")
    one_row_rule_off(monkeypatch, target)
    assert differing(make_case, CONTROL, target)
