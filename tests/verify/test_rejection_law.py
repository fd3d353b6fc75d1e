"""Rejection sampling against the exact laws of the golden cases."""

import pytest
import torch

from dartree_exp.verify.rejection import draw, first_accepted, residual
from golden_support import golden_cases


def named(prefix):
    return golden_cases("sampling", lambda case: case.name.startswith(prefix))


def chance(p, q, token):
    """The probability that a draft is accepted: the uniform number at which it no longer is."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        taken, _ = first_accepted(p, q, [token], [middle], False)
        low, high = (middle, high) if taken == 0 else (low, middle)
    return low


def one_hot(token, vocab):
    law = torch.zeros(vocab, dtype=torch.float64)
    law[token] = 1.0
    return law


@pytest.mark.parametrize("golden", named("residual_single"))
def test_one_position(golden):
    arrays, cases = golden.arrays, golden.spec["subcases"]
    assert cases
    for case in cases:
        i = case["index"]
        p, q = arrays[f"{i}.p"], arrays[f"{i}.q"]
        torch.testing.assert_close(residual(p, q), arrays[f"{i}.residual"], atol=1e-6, rtol=0)
        output = torch.zeros_like(p)
        for token in range(len(p)):
            accepted = chance(p, q, token) if q[token] > 0 else 0.0
            after = residual(p, q) * (1 - accepted)
            after[token] += accepted
            expected = arrays[f"{i}.output_given_proposal"][token]
            if q[token] > 0:
                assert accepted == pytest.approx(float(arrays[f"{i}.accept_prob"][token]), abs=1e-6)
                torch.testing.assert_close(after, expected, atol=1e-6, rtol=0)
            output += q[token] * after
        torch.testing.assert_close(output, p, atol=1e-6, rtol=0)


@pytest.mark.parametrize("golden", named("chain_fixed_uniforms"))
def test_chains_with_given_uniform_numbers(golden):
    arrays, cases = golden.arrays, golden.spec["subcases"]
    assert cases
    for case in cases:
        p, q, drafts, uniforms = (
            arrays[f"{case['index']}.{name}"] for name in ("p", "q", "draft_tokens", "uniforms")
        )
        accepted, law = 0, p[len(drafts)]
        for depth, (draft, uniform) in enumerate(zip(drafts.tolist(), uniforms, strict=True)):
            taken, left = first_accepted(p[depth], q[depth], [draft], [float(uniform)], False)
            if taken is None:
                law = left
                break
            accepted += 1
        assert accepted == case["accepted"], case
        expected = arrays[f"{case['index']}.next_token_law"]
        torch.testing.assert_close(law, expected.to(law), atol=1e-5, rtol=0)


@pytest.mark.parametrize("golden", named("chain3_"))
def test_every_outcome_of_a_chain_of_three(golden):
    """Acceptance, and the law of the next token, for every draft; the emitted tokens follow the
    target.
    """
    arrays = golden.arrays
    p, q = ([arrays[f"{name}{k}"] for k in range(n)] for name, n in (("p", 4), ("q", 3)))
    vocab = p[0].shape[0]
    counts = torch.zeros(4, dtype=torch.float64)
    for draft in torch.cartesian_prod(*[torch.arange(vocab)] * 3).tolist():
        reach, found = 1.0, torch.zeros(4, dtype=torch.float64)
        laws = arrays["next_token_law_given_draft_and_count"][tuple(draft)]
        for k, token in enumerate(draft):
            here = p[k][tuple(draft[:k])], q[k][tuple(draft[:k])]
            accepted = chance(*here, token)
            found[k] = reach * (1 - accepted)
            if found[k] > 1e-9:
                _, law = first_accepted(*here, [token], [1.0], False)
                torch.testing.assert_close(law, laws[k], atol=1e-6, rtol=0)
            reach *= accepted
        found[3] = reach
        expected = arrays["accepted_count_given_draft"][tuple(draft)]
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        counts += arrays["draft_prob"][tuple(draft)] * found
    torch.testing.assert_close(counts, arrays["accepted_count"], atol=1e-6, rtol=0)
    assert counts.tolist() == pytest.approx(
        golden.spec["expected"]["accepted_count_distribution"], abs=1e-6
    )


@pytest.mark.parametrize("golden", named("sibling_rejection_q1"))
def test_deterministic_siblings(golden):
    """Children that were not drawn: each has all of the probability when it is tried."""
    p, left = golden.arrays["p"], 1.0
    now = p
    for child in golden.spec["children"]:
        certain = one_hot(child["token"], len(p))
        accepted = chance(now, certain, child["token"])
        assert accepted == pytest.approx(child["accept_prob_when_tried"], abs=1e-6)
        assert left * accepted == pytest.approx(child["marginal_accept_prob"], abs=1e-6)
        left *= 1 - accepted
        now = residual(now, certain)
    assert left == pytest.approx(golden.spec["expected"]["reject_all_prob"], abs=1e-6)
    expected = golden.arrays["residual_after_all_rejected"]
    torch.testing.assert_close(now, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("distinct", [True, False])
def test_two_siblings_of_four_tokens(distinct):
    """Every pair of distinct draws, by its probability. Control: with q as if the first draw could
    be drawn again, the law is another.
    """
    p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    emitted = torch.zeros_like(p)
    for pair in torch.cartesian_prod(torch.arange(4), torch.arange(4)).tolist():
        if pair[0] == pair[1]:
            continue
        drawn = float(q[pair[0]] * q[pair[1]] / (1 - q[pair[0]]))
        first = chance(p, q, pair[0])
        emitted[pair[0]] += drawn * first
        for u in (torch.arange(50) + 0.5) / 50:  # the second draft's number, in steps
            taken, rest = first_accepted(p, q, pair, [1.0, float(u)], distinct)
            share = drawn * (1 - first) / 50
            emitted += share * (one_hot(pair[1], 4) if taken == 1 else rest)
    off = float((emitted - p).abs().max())
    assert off < 0.005 if distinct else off > 0.02


def test_a_draft_without_probability_is_never_accepted():
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    one = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert first_accepted(p, one, [0, 1], [0.9, 0.0], True)[0] is None
    assert first_accepted(p, one, [0, 1], [0.4, 0.0], True)[0] == 0


def test_a_draw_never_has_probability_zero():
    p = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64)
    assert [draw(p, u) for u in (0.0, 0.24, 0.25, 0.9999999999999999)] == [1, 1, 3, 3]
