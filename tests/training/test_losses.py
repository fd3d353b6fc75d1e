"""The chunked loss against autograd; slot sampling against its stated probabilities."""

import pytest
import torch
import torch.nn.functional as F

from dartree_exp.training.losses import (
    Mix,
    confidence_loss,
    draft_loss,
    draw_slots,
    inclusion_probabilities,
    length_labels,
    position_weights,
)


def test_position_weights_follow_the_published_formula():
    weights = position_weights(4, gamma=2.0, first=1)
    assert weights[0] == 0
    assert torch.allclose(weights[1:], torch.tensor([-0.5, -1.0, -1.5]).exp())


@pytest.mark.parametrize(
    ("slots", "gamma", "count", "first"),
    [(16, 4.0, 4, 0), (8, 4.0, 4, 0), (16, 1.0, 5, 1), (4, 9.0, 4, 0)],
)
def test_slots_are_drawn_with_their_probability(slots, gamma, count, first):
    weights = position_weights(slots, gamma, first)
    chance = inclusion_probabilities(weights, count)
    assert chance.sum() == pytest.approx(count, abs=1e-5)
    assert bool((chance <= 1).all())
    loose = (chance < 1) & (chance > 0)
    ratio = (chance / weights)[loose]
    assert ratio.numel() == 0 or torch.allclose(ratio, ratio[0].expand_as(ratio), rtol=1e-4)
    drawn = draw_slots(chance, 20_000, torch.Generator().manual_seed(3))
    assert drawn.shape == (20_000, count)
    assert bool((drawn.diff(dim=1) > 0).all()), "a slot was drawn twice"
    frequency = torch.bincount(drawn.flatten(), minlength=slots) / 20_000
    assert torch.allclose(frequency, chance, atol=0.015)


def test_more_slots_than_have_weight_are_refused():
    with pytest.raises(ValueError, match="cannot draw 4 of 3"):
        inclusion_probabilities(position_weights(4, 4.0, first=1), 4)


def test_sampled_loss_has_the_expectation_of_the_full_one():
    loss = torch.rand(16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = position_weights(16, 4.0)
    chance = inclusion_probabilities(weights, 4)
    drawn = draw_slots(chance, 50_000, torch.Generator().manual_seed(2))
    estimate = (loss[drawn] * (weights / chance)[drawn]).sum(1).mean()
    assert float(estimate) == pytest.approx(float((loss * weights).sum()), rel=0.01)


@pytest.mark.parametrize("base_share", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("chunk", [3, 64])
def test_gradients_equal_autograd(base_share, chunk):
    rng = torch.Generator().manual_seed(0)
    hidden, head, codes, output = (
        torch.randn(n, m, generator=rng) for n, m in [(10, 6), (9, 6), (10, 4), (9, 4)]
    )
    labels, weights = torch.randint(0, 9, (10,), generator=rng), torch.rand(10, generator=rng)
    result = draft_loss(
        hidden,
        head,
        labels,
        weights,
        float(weights.sum()),
        codes=codes,
        output=output,
        base_share=base_share,
        chunk=chunk,
    )
    for tensor in (hidden, codes, output):
        tensor.requires_grad_(True)
    share = weights / weights.sum()
    base = hidden @ head.T
    base_loss = (F.cross_entropy(base, labels, reduction="none") * share).sum()
    final_loss = (F.cross_entropy(base + codes @ output.T, labels, reduction="none") * share).sum()
    (base_share * base_loss + (1 - base_share) * final_loss).backward()
    assert result.final == pytest.approx(final_loss.item(), rel=1e-5)
    if base_share:
        assert result.base == pytest.approx(base_loss.item(), rel=1e-5)
    assert torch.allclose(result.hidden, hidden.grad, atol=1e-6)
    if base_share < 1:
        assert torch.allclose(result.codes, codes.grad, atol=1e-6)
        assert torch.allclose(result.output, output.grad, atol=1e-6)


def test_bfloat16_products_change_the_gradients_by_rounding_only():
    rng = torch.Generator().manual_seed(0)
    hidden, head, codes, output = (
        torch.randn(n, m, generator=rng) / m**0.5
        for n, m in [(64, 32), (90, 32), (64, 16), (90, 16)]
    )
    labels, weights = torch.randint(0, 90, (64,), generator=rng), torch.rand(64, generator=rng)
    total, more = float(weights.sum()), {"codes": codes, "output": output, "base_share": 0.3}
    exact = draft_loss(hidden, head, labels, weights, total, **more)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = draft_loss(hidden, head, labels, weights, total, **more)
    assert rounded.final != exact.final, (
        "the products were not rounded: autocast did not reach the loss"
    )
    assert rounded.final == pytest.approx(exact.final, rel=1e-3)
    for name in ("hidden", "codes", "output"):
        mine, wanted = getattr(rounded, name), getattr(exact, name)
        assert mine.dtype == torch.float32
        assert (mine - wanted).norm() < 0.01 * wanted.norm()


@pytest.mark.parametrize("chunk", [3, 100])
@pytest.mark.parametrize(
    "mix", [Mix(0.1, 0.9), Mix(0.0, 1.0), Mix(0.0, 0.0, 1.0), Mix(0.5, 0.3, 0.2)]
)
@pytest.mark.parametrize("base_share", [0.0, 0.4, 1.0])
def test_losses_against_the_targets_distribution_match_autograd(mix, base_share, chunk):
    """DSpark: ce CE + l1 sum |q - p|; JetSpec: KL(p || q)."""
    rng = torch.Generator().manual_seed(0)
    hidden, head, codes, output, teacher = (
        torch.randn(n, m, generator=rng) for n, m in [(10, 6), (9, 6), (10, 4), (9, 4), (10, 6)]
    )
    labels, weights = torch.randint(0, 9, (10,), generator=rng), torch.rand(10, generator=rng)
    more = {} if base_share == 1 else {"codes": codes, "output": output}
    result = draft_loss(
        hidden, head, labels, weights, float(weights.sum()), teacher=teacher, mix=mix,
        base_share=base_share, chunk=chunk, **more,
    )  # fmt: skip
    p = (teacher @ head.T).softmax(-1)

    def loss(logits):
        q = logits.softmax(-1)
        rows = mix.ce * F.cross_entropy(logits, labels, reduction="none")
        rows = rows + mix.l1 * (q - p).abs().sum(-1)
        rows = rows + mix.kl * F.kl_div(q.log(), p, reduction="none").sum(-1)
        return (rows * weights / weights.sum()).sum(), 1 - (q - p).abs().sum(-1) / 2

    for tensor in (hidden, codes, output):
        tensor.requires_grad_(True)
    base, accepted = loss(hidden @ head.T)
    final = torch.zeros(())
    if base_share < 1:
        final, accepted = loss(hidden @ head.T + codes @ output.T)
    (base_share * base + (1 - base_share) * final).backward()
    assert result.final == pytest.approx(final.item(), rel=1e-5)
    if base_share:
        assert result.base == pytest.approx(base.item(), rel=1e-5)
    torch.testing.assert_close(result.acceptance, accepted.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(result.hidden, hidden.grad, atol=1e-6, rtol=1e-4)
    if base_share < 1:
        torch.testing.assert_close(result.codes, codes.grad, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(result.output, output.grad, atol=1e-6, rtol=1e-4)


def test_a_loss_against_a_distribution_needs_a_teacher():
    rows = torch.zeros(1, 2), torch.zeros(3, 2), torch.zeros(1, dtype=torch.long), torch.ones(1)
    for mix in (Mix(l1=1.0), Mix(kl=1.0)):
        with pytest.raises(ValueError, match="needs a teacher"):
            draft_loss(*rows, 1.0, mix=mix)


def test_corrected_loss_without_a_head_is_refused():
    with pytest.raises(ValueError, match="needs codes and output"):
        draft_loss(
            torch.zeros(1, 2),
            torch.zeros(3, 2),
            torch.zeros(1, dtype=torch.long),
            torch.ones(1),
            1.0,
            base_share=0.5,
        )


@pytest.mark.parametrize("corrected", [True, False])
def test_without_a_teacher_acceptance_is_the_probability_of_the_label(corrected):
    rng = torch.Generator().manual_seed(0)
    hidden, head, codes, output = (
        torch.randn(n, m, generator=rng) for n, m in [(10, 6), (9, 6), (10, 4), (9, 4)]
    )
    labels = torch.randint(0, 9, (10,), generator=rng)
    more = {"codes": codes, "output": output, "base_share": 0.4} if corrected else {}
    result = draft_loss(hidden, head, labels, torch.ones(10), 10.0, chunk=3, **more)
    logits = hidden @ head.T + (codes @ output.T if corrected else 0)
    assert torch.allclose(
        result.acceptance, logits.softmax(-1)[torch.arange(10), labels], atol=1e-6
    )


def test_the_confidence_target_is_one_minus_half_the_distance_to_a_one_hot_target():
    """DeepSpec's c* = clamp(1 - L1 / 2, 0, 1) is the label's probability where the target is
    greedy.
    """
    q = torch.randn(5, 7).softmax(-1)
    label = torch.tensor([0, 3, 6, 2, 2])
    p = torch.nn.functional.one_hot(label, 7).float()
    published = (1 - (p - q).abs().sum(-1) / 2).clamp(0, 1)
    likelihood = q[torch.arange(5), label]
    assert torch.allclose(published, likelihood, atol=1e-6)
    weights = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0])
    best = torch.logit(likelihood)
    least = confidence_loss(best, published, weights, 5.0)
    for step in (-0.1, 0.1):
        assert confidence_loss(best + step, published, weights, 5.0) > least
    assert torch.equal(
        confidence_loss(best + torch.tensor([0, 0, 9.0, 0, 0]), published, weights, 5.0), least
    )


@pytest.mark.parametrize("chunk", [3, 100])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("clip", [0.3, 100.0])
@pytest.mark.parametrize("base_share", [1.0, 0.4])
def test_adaflashs_loss_matches_autograd(base_share, clip, temperature, chunk):
    """alpha CE(argmax p) + (1 - alpha) sum_i w_i min(T^2 KL(q || p)_i / sum w, clip)."""
    rng = torch.Generator().manual_seed(0)
    hidden, head, codes, output, teacher = (
        torch.randn(n, m, generator=rng) for n, m in [(10, 6), (9, 6), (10, 4), (9, 4), (10, 6)]
    )
    labels, weights = torch.randint(0, 9, (10,), generator=rng), torch.rand(10, generator=rng)
    alpha, total = 0.8, float(weights.sum())
    result = draft_loss(
        hidden,
        head,
        labels,
        weights,
        total,
        codes=codes,
        output=output,
        teacher=teacher,
        mix=Mix(ce=alpha, rkl=1 - alpha, clip=clip, temperature=temperature),
        base_share=base_share,
        hits=True,
        chunk=chunk,
    )
    for tensor in (hidden, codes, output):
        tensor.requires_grad_(True)
    wanted = teacher @ head.T
    log_p = (wanted / temperature).log_softmax(1)
    cut = []

    def loss(logits):
        log_q = (logits / temperature).log_softmax(1)
        kl = temperature**2 * (log_q.exp() * (log_q - log_p)).sum(1) / weights.sum()
        cut.append(int((kl > clip).sum()))
        entropy = F.cross_entropy(logits, wanted.argmax(1), reduction="none")
        return (
            alpha * (weights * entropy).sum() / weights.sum()
            + (1 - alpha) * (weights * kl.clamp(max=clip)).sum()
        )

    base = hidden @ head.T
    base_loss, final_loss = loss(base), loss(base + codes @ output.T)
    assert (0 < cut[0] < 10) if clip < 100 else cut == [0, 0]
    (base_share * base_loss + (1 - base_share) * final_loss).backward()
    assert result.base == pytest.approx(base_loss.item(), rel=1e-5)
    assert result.final == pytest.approx(final_loss.item(), rel=1e-5)
    assert torch.allclose(result.hidden, hidden.grad, atol=1e-5)
    if base_share < 1:
        assert torch.allclose(result.codes, codes.grad, atol=1e-5)
        assert torch.allclose(result.output, output.grad, atol=1e-5)
    assert torch.equal(result.right, base.argmax(1) == labels)


def test_length_labels_count_the_leading_matches():
    """clamp(accepted + 1, 0, b) / b; a block that is right up to the end of the text says only
    that it was at least so long.
    """
    rows = [
        ([1, 1, 0, 1], [1, 1, 1, 1], 3 / 4),
        ([0, 1, 1, 1], [1, 1, 1, 1], 1 / 4),
        ([1, 1, 1, 1], [1, 1, 1, 1], 4 / 4),
        ([1, 0, 0, 0], [1, 1, 0, 0], 2 / 4),
        ([1, 1, 0, 0], [1, 1, 0, 0], None),
        ([0, 0, 0, 0], [0, 0, 0, 0], None),
    ]
    right, inside = (torch.tensor([row[i] for row in rows]).bool() for i in (0, 1))
    labels, known = length_labels(right, inside)
    assert known.tolist() == [row[2] is not None for row in rows]
    assert labels[known].tolist() == [row[2] for row in rows if row[2] is not None]
