"""The drafting objective: cross-entropy over the block's slots with weights exp(-k / gamma), and
its gradient in chunks.

Source: DFlash and Domino (facts: weights, base-to-final curriculum), DSpark (L1), JetSpec (forward
KL), AdaFlash (reverse KL and length labels). Two things keep it cheap on a
CPU without changing its expectation: slots are drawn with probability proportional to their weight
instead of all being computed (an unbiased Horvitz-Thompson estimate), and the logits exist only for
one chunk of rows at a time, whose gradient is formed at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def position_weights(slots: int, gamma: float, first: int = 0) -> Tensor:
    """exp(-k / gamma) for slot k = 0..slots-1, float32; zero below slot `first`."""
    k = torch.arange(slots, dtype=torch.float32)
    return torch.exp(-k / gamma) * (k >= first)


def inclusion_probabilities(weights: Tensor, count: int) -> Tensor:
    """Probability [b] of each slot when `count` of them are drawn: proportional to its weight, at
    most 1, sum `count`.

    Raises:
        ValueError: fewer than `count` slots have weight.
    """
    if int((weights > 0).sum()) < count:
        raise ValueError(f"cannot draw {count} of {int((weights > 0).sum())} weighted slots")
    weights = weights.double()
    certain = torch.zeros(len(weights), dtype=torch.bool)
    while True:
        rest = torch.where(certain, 0.0, weights)
        share = rest * (count - int(certain.sum())) / rest.sum().clamp_min(1e-300)
        if not bool((share > 1).any()):
            return torch.where(certain, 1.0, share).float()
        certain |= share >= 1


def draw_slots(probabilities: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """Systematic sampling: int64 [blocks, count], ascending distinct slots, slot k with probability
    `probabilities[k]`.
    """
    edges = probabilities.double().cumsum(0)
    count = round(float(edges[-1]))
    offset = torch.rand(blocks, 1, generator=generator, dtype=torch.float64)
    picks = torch.searchsorted(edges, offset + torch.arange(count), right=True)
    last = int(probabilities.nonzero()[-1])
    return picks.clamp_max(last)  # Rounding of the last edge must not pick a slot behind it.


@dataclass(frozen=True)
class Mix:
    """Weights of the terms of a drafting loss: cross-entropy with the label, L1 distance to the
    target's distribution, forward KL divergence from it, reverse KL divergence.

    With a reverse KL the loss is AdaFlash's, `ce * CE + rkl * sum_i w_i min(T^2 KL(q, p)_i / W,
    clip)` with W the sum of the weights w and T `temperature`; its CE is with the target's
    likeliest id.
    """

    ce: float = 1.0
    l1: float = 0.0
    kl: float = 0.0
    rkl: float = 0.0
    clip: float = math.inf
    temperature: float = 1.0

    @property
    def taught(self) -> bool:
        """Whether it reads the target's distribution."""
        return self.l1 > 0 or self.kl > 0 or self.rkl > 0


@dataclass(frozen=True)
class LossResult:
    """Weighted mean losses (floats) and the gradients of the mixed loss; a gradient not asked for
    is None.

    head: of the vocabulary head, where it is trained.
    acceptance: float32 [N], the chance that the target accepts a draft drawn from q, the drafter's
    distribution (corrected where there is a correction): 1 - L1(p, q) / 2. Without a teacher p is
    one-hot at the label, which makes it q(label). right: bool [N], the likeliest
    draft is the label.
    """

    base: float
    final: float
    acceptance: Tensor
    hidden: Tensor | None
    codes: Tensor | None
    output: Tensor | None
    head: Tensor | None = None
    right: Tensor | None = None


@torch.no_grad()
def draft_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    weights: Tensor,
    total: float,
    *,
    codes: Tensor | None = None,
    output: Tensor | None = None,
    teacher: Tensor | None = None,
    teacher_head: Tensor | None = None,
    mix: Mix = Mix(),  # noqa: B008
    base_share: float = 1.0,
    hidden_gradient: bool = True,
    output_gradient: bool = True,
    head_gradient: bool = False,
    hits: bool = False,
    chunk: int = 512,
) -> LossResult:
    """Mixed loss base_share * loss(base) + (1 - base_share) * loss(base + correction), with
    gradients, in chunks of rows.

    Under autocast the products are bfloat16 and everything between them (log-sum-exp, softmax,
    sums) float32.

    Args:
        hidden: float32 [N, H] final-normed slots; base logits are hidden @ head.T.
        head: float32 [Vd, H], the vocabulary head: the target's rows, or the drafter's own.
        labels: int64 [N] columns.
        weights: float32 [N]; the loss is the sum of weight * loss divided by `total`, the sum of
            the weights of all rows that it is a mean over.
        codes, output: [N, E] and [Vd, E]; the correction is codes @ output.T. Needed where
            base_share < 1.
        teacher: [N, H] final-normed hidden states of the target; p = softmax(teacher @
            teacher_head.T), over the drafting vocabulary. Needed if `mix.taught`.
        teacher_head: float32 [Vd, H], the target's rows; None: `head`.
        hits: give `right`, of the base logits.
    """
    corrected = codes is not None and output is not None
    if base_share < 1 and not corrected:
        raise ValueError("a corrected loss needs codes and output")
    if mix.taught and teacher is None:
        raise ValueError("a loss against the target's distribution needs a teacher")
    d_hidden = torch.empty_like(hidden) if hidden_gradient else None
    d_codes = None if codes is None else torch.empty_like(codes)
    d_output = torch.zeros_like(output) if output is not None and output_gradient else None
    d_head = torch.zeros_like(head) if head_gradient else None
    sums = [0.0, 0.0]
    acceptance = torch.empty(len(hidden))
    right = torch.empty(len(hidden), dtype=torch.bool) if hits else None
    for begin in range(0, len(hidden), chunk):
        part = slice(begin, begin + chunk)
        share, target = weights[part] / max(total, 1e-12), labels[part]
        base = F.linear(hidden[part], head).float()
        if right is not None:
            right[part] = base.argmax(1) == target
        wanted = law = None
        if teacher is not None:
            rows = head if teacher_head is None else teacher_head
            wanted = F.linear(teacher[part].to(rows.dtype), rows).float()
            law = wanted.softmax(-1)
            if mix.rkl:
                target = wanted.argmax(1)
        most = mix.clip * total
        gradient = None
        if codes is not None and output is not None and d_codes is not None:
            final = base + F.linear(codes[part], output)
            loss, acceptance[part] = _loss_to_gradient(final, target, wanted, law, share, mix, most)
            sums[1] += float((loss * share).sum())
            final.mul_(1 - base_share)
            d_codes[part] = final @ output
            if d_output is not None:
                d_output += final.T @ codes[part]
            gradient = final
        if base_share > 0 or not corrected:
            loss, accepted = _loss_to_gradient(base, target, wanted, law, share, mix, most)
            sums[0] += float((loss * share).sum())
            if not corrected:
                acceptance[part] = accepted
            gradient = (
                base.mul_(base_share) if gradient is None else gradient.add_(base, alpha=base_share)
            )
        if d_hidden is not None and gradient is not None:
            d_hidden[part] = gradient @ head
        if d_head is not None and gradient is not None:
            d_head += gradient.T @ hidden[part]
    return LossResult(sums[0], sums[1], acceptance, d_hidden, d_codes, d_output, d_head, right)


def confidence_loss(logits: Tensor, acceptance: Tensor, weights: Tensor, total: float) -> Tensor:
    """BCE of confidence logits [N], weighted and divided by `total`, against c* = 1 - L1(p, q) / 2
    [N], a constant (DSpark, section 1.5); 0 where the drafting vocabulary lacks the label.
    """
    loss = F.binary_cross_entropy_with_logits(logits, acceptance.detach(), reduction="none")
    return (loss * weights).sum() / max(total, 1e-12)


def _loss_to_gradient(
    logits: Tensor,
    target: Tensor,
    wanted: Tensor | None,
    law: Tensor | None,
    share: Tensor,
    mix: Mix,
    most: float,
) -> tuple[Tensor, Tensor]:
    """Replace logits [n, Vd] by the gradient of sum(share * loss) in place; returns loss and
    acceptance [n]. wanted: the target's logits [n, Vd]; law: their softmax p. most: a row's largest
    reverse KL.

    With q = softmax(logits): d CE = q - onehot, d KL = q - p, d L1 = q (s -
    sum(q s)) with s = sign(q - p).
    """
    rows = torch.arange(len(target))
    back = None
    if wanted is not None and mix.rkl:
        back = _reverse_kl(logits, wanted, mix.temperature, most)
    log_z = torch.logsumexp(logits, dim=1)
    entropy = log_z - logits[rows, target]
    loss = mix.ce * entropy
    if law is not None and mix.kl:
        loss = loss + mix.kl * (torch.xlogy(law, law).sum(1) - (law * logits).sum(1) + log_z)
    if back is not None:
        loss = loss + mix.rkl * back[0]
    q = logits.sub_(log_z[:, None]).exp_()
    if law is None:
        logits[rows, target] -= 1
        logits.mul_(mix.ce * share[:, None])
        return loss, torch.exp(-entropy)
    apart = q - law
    distance = apart.abs().sum(1)
    loss = loss + mix.l1 * distance
    slope = apart.sign_()
    slope.sub_((q * slope).sum(1, keepdim=True)).mul_(q).mul_(mix.l1)
    q.mul_(mix.ce + mix.kl).add_(slope).sub_(law, alpha=mix.kl)
    q[rows, target] -= mix.ce
    if back is not None:
        q.add_(back[1], alpha=mix.rkl)
    q.mul_(share[:, None])
    return loss, (1 - distance / 2).clamp_(0, 1)


def _reverse_kl(
    logits: Tensor, wanted: Tensor, temperature: float, most: float
) -> tuple[Tensor, Tensor]:
    """min(T^2 KL(q, p), most) [n] and its gradient [n, Vd], for the laws of logits / T and of
    wanted / T: T q (log q - log p - KL), 0 where it is cut.
    """
    log_q = torch.log_softmax(logits / temperature, 1)
    apart, q = log_q - torch.log_softmax(wanted / temperature, 1), log_q.exp()
    divergence = (q * apart).sum(1)
    value = temperature**2 * divergence
    gradient = apart.sub_(divergence[:, None]).mul_(q).mul_(temperature)
    gradient[value >= most] = 0
    return value.clamp_max(most), gradient


def length_labels(right: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """AdaFlash's labels of blocks with b slots, clamp(accepted + 1, 0, b) / b, float32 [N], and
    which blocks have one.

    right: bool [N, b], the likeliest draft of a slot is the text's. inside: bool [N, b], there is
    text. A block whose drafts are right up to the end of the text has no label.
    """
    size = right.shape[1]
    accepted = right.long().cumprod(1).sum(1)
    known = inside[:, 0] & ((accepted < inside.sum(1)) | inside.all(1))
    return (accepted + 1).clamp(0, size) / size, known
