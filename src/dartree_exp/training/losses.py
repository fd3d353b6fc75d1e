"""The drafting objective: cross-entropy over the block's slots with weights exp(-k / gamma), and
its gradient in chunks.

Source: DFlash and Domino (facts: weights, base-to-final curriculum). Two things keep it cheap on a
CPU without changing its expectation: slots are drawn with probability proportional to their weight
instead of all being computed (an unbiased Horvitz-Thompson estimate), and the logits exist only for
one chunk of rows at a time, whose gradient is formed at once.
"""

from __future__ import annotations

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
class LossResult:
    """Weighted mean losses (floats) and the gradients of the mixed loss; a gradient not asked for
    is None.

    likelihood: float32 [N], the drafter's probability of each label, corrected where there is a
    correction.
    """

    base: float
    final: float
    likelihood: Tensor
    hidden: Tensor | None
    codes: Tensor | None
    output: Tensor | None


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
    base_share: float = 1.0,
    hidden_gradient: bool = True,
    chunk: int = 512,
) -> LossResult:
    """Mixed loss base_share * CE(base) + (1 - base_share) * CE(base + correction), with gradients,
    in chunks of rows.

    Under autocast the products are bfloat16 and everything between them (log-sum-exp, softmax,
    sums) float32.

    Args:
        hidden: float32 [N, H] final-normed slots; base logits are hidden @ head.T.
        head: float32 [Vd, H] frozen vocabulary rows.
        labels: int64 [N] columns.
        weights: float32 [N]; the loss is the sum of weight * CE divided by `total`, the sum of
            the weights of all rows that it is a mean over.
        codes, output: [N, E] and [Vd, E]; the correction is codes @ output.T. Needed where
            base_share < 1.
    """
    corrected = codes is not None and output is not None
    if base_share < 1 and not corrected:
        raise ValueError("a corrected loss needs codes and output")
    d_hidden = torch.empty_like(hidden) if hidden_gradient else None
    d_codes = None if codes is None else torch.empty_like(codes)
    d_output = None if output is None else torch.zeros_like(output)
    sums = [0.0, 0.0]
    likelihood = torch.empty(len(hidden))
    for begin in range(0, len(hidden), chunk):
        part = slice(begin, begin + chunk)
        share, target = weights[part] / max(total, 1e-12), labels[part]
        base = F.linear(hidden[part], head).float()
        gradient = None
        if (
            codes is not None
            and output is not None
            and d_codes is not None
            and d_output is not None
        ):
            final = base + F.linear(codes[part], output)
            loss = _loss_to_gradient(final, target, share)
            sums[1] += float((loss * share).sum())
            likelihood[part] = torch.exp(-loss)
            final.mul_(1 - base_share)
            d_codes[part] = final @ output
            d_output += final.T @ codes[part]
            gradient = final
        if base_share > 0 or not corrected:
            loss = _loss_to_gradient(base, target, share)
            sums[0] += float((loss * share).sum())
            if not corrected:
                likelihood[part] = torch.exp(-loss)
            gradient = (
                base.mul_(base_share) if gradient is None else gradient.add_(base, alpha=base_share)
            )
        if d_hidden is not None and gradient is not None:
            d_hidden[part] = gradient @ head
    return LossResult(sums[0], sums[1], likelihood, d_hidden, d_codes, d_output)


def confidence_loss(logits: Tensor, acceptance: Tensor, weights: Tensor, total: float) -> Tensor:
    """BCE of confidence logits [N], weighted and divided by `total`, against c* = 1 - L1(p, q) / 2
    [N], a constant (DSpark, section 1.5).

    The text is the target's greedy output, so p is one-hot at the label y and c* = 1 - (1 - q(y)) =
    q(y): the drafter's own probability of the label, 0 where the drafting vocabulary lacks it.
    DeepSpec lets this loss's gradient into backbone and W1. Here it reaches the confidence head
    alone (`ConfidenceHead.forward` sees to that), so that a head with it is trained as one without.
    """
    loss = F.binary_cross_entropy_with_logits(logits, acceptance.detach(), reduction="none")
    return (loss * weights).sum() / max(total, 1e-12)


def _loss_to_gradient(logits: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """Replace logits [n, Vd] by the gradient of sum(share * CE) in place; returns CE [n]."""
    log_z = torch.logsumexp(logits, dim=1)
    loss = log_z - logits.gather(1, target[:, None]).squeeze(1)
    logits.sub_(log_z[:, None]).exp_()
    logits[torch.arange(len(target)), target] -= 1
    logits.mul_(share[:, None])
    return loss
