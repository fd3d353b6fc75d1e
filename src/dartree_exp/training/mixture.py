"""The drafting objective of a latent mixture (DBLast, arXiv 2608.05448), and its gradient in chunks
of blocks.

With P_d = sum_z p(z) prod_{i <= d} q(y_i | z), the chance that d drafts of the mixture are the
text's, its acceptance term is -sum_d P_d, the expected accepted length, or the logarithm of it; its
cross-entropy is that of q(y_d | y_1 .. y_{d-1}) = P_d / P_{d-1}.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class MixtureMix:
    """Weights of the cross-entropy and of the acceptance term.

    log: minimise -log sum_d P_d instead of -sum_d P_d. threshold: a depth reached with less
    probability does not count, P_{d-1} < threshold.
    """

    ce: float = 1.0
    accept: float = 0.0
    log: bool = True
    threshold: float = 0.0


@dataclass(frozen=True)
class MixtureResult:
    """Losses as means (floats), and the gradients of the mixed one; a gradient not asked for is
    None.

    base: cross-entropy of the base logits. final: of the mixture, with both terms. accepted: mean
    expected accepted length of a block, by all depths.
    """

    base: float
    final: float
    accepted: float
    codes: Tensor
    output: Tensor
    prior: Tensor
    hidden: Tensor | None


def prefix_log_probs(log_prior: Tensor, said: Tensor, known: Tensor) -> Tensor:
    """log P_1 .. log P_D [n, D] of log p(z) [n, Z] and log q(y_d | z) [n, D, Z]. A label that is
    not known, bool [n, D], counts as certain.
    """
    path = torch.where(known[..., None], said, 0.0).cumsum(1)
    return (log_prior[:, None] + path).logsumexp(-1)


def acceptance(
    log_probs: Tensor, known: Tensor, log: bool = True, threshold: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The acceptance term and the expected accepted length of each block, [n].

    A block counts up to its first label that is not known. Blocks without a first label have 0.
    """
    reached = known.long().cumprod(1).bool()
    before = F.pad(log_probs.detach()[:, :-1], (1, 0))  # log P_{d-1}
    counted = reached & (before.exp() >= threshold)
    chances = log_probs.clamp_max(0).exp()
    length = (chances * reached).sum(1)
    if not log:
        return -(chances * counted).sum(1), length
    # A first label that is next to impossible still has a gradient: the logarithm's own.
    rows = torch.where(counted, log_probs, float("-inf"))
    rows = torch.where(reached[:, :1], rows, 0.0)
    return torch.where(reached[:, 0], -rows.logsumexp(1), 0.0), length


@torch.no_grad()
def mixture_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    weights: Tensor,
    totals: tuple[float, float],
    codes: Tensor,
    output: Tensor,
    log_prior: Tensor,
    *,
    mix: MixtureMix = MixtureMix(),  # noqa: B008
    base_share: float = 0.0,
    hidden_gradient: bool = False,
    rows: int = 1024,
) -> MixtureResult:
    """base_share * ce * CE(base) + (1 - base_share) * (ce * CE(mixture) + accept * acceptance).

    Under autocast the products are bfloat16 and everything between them float32.

    Args:
        hidden: float32 [n, D, H], final-normed slots of whole blocks; base logits are hidden @
            head.T.
        head: float32 [Vd, H], the target's rows.
        labels: int64 [n, D] columns, -1 where there is none.
        weights: float32 [n, D] of the slots' cross-entropies.
        totals: what the sums over slots and over blocks are divided by.
        codes, output: [n, D, Z, r] and [Vd, r]; a category's offsets are codes @ output.T.
        log_prior: [n, Z].
        rows: logits of so many slots and categories exist at a time.
    """
    whole, blocks = (max(total, 1e-12) for total in totals)
    slots, latents = codes.shape[1:3]
    d_codes, d_prior = torch.empty_like(codes), torch.empty_like(log_prior)
    d_output = torch.zeros_like(output)
    d_hidden = torch.empty_like(hidden) if hidden_gradient else None
    sums = [0.0, 0.0, 0.0]
    size = max(1, rows // (slots * latents))
    for begin in range(0, len(hidden), size):
        part = slice(begin, begin + size)
        known, share = labels[part] >= 0, weights[part] / whole
        target = labels[part].clamp_min(0)
        base = F.linear(hidden[part], head).float()
        each = base[:, :, None] + F.linear(codes[part], output).float()  # [n, D, Z, Vd]
        index = target[..., None, None].expand(-1, -1, latents, 1)
        log_z = each.logsumexp(-1)
        said = each.gather(3, index).squeeze(3) - log_z
        with torch.enable_grad():
            said.requires_grad_(True)
            prior = log_prior[part].float().requires_grad_(True)
            log_probs = prefix_log_probs(prior, said, known)
            steps = log_probs - F.pad(log_probs[:, :-1], (1, 0))
            term, length = acceptance(log_probs, known, mix.log, mix.threshold)
            loss = mix.accept * term.sum() / blocks - mix.ce * (steps * known * share).sum()
            loss.backward()  # type: ignore[no-untyped-call]
        assert said.grad is not None and prior.grad is not None
        sums[1] += float(loss)
        sums[2] += float(length.sum()) / blocks
        slope = said.grad * (1 - base_share)
        each.sub_(log_z[..., None]).exp_().mul_(-slope[..., None])
        each.scatter_add_(3, index, slope[..., None])
        d_codes[part] = each @ output
        d_output += each.flatten(0, 2).T @ codes[part].flatten(0, 2)
        d_prior[part] = prior.grad * (1 - base_share)
        if base_share == 0 and d_hidden is None:
            continue
        entropy = base.logsumexp(-1) - base.gather(2, target[..., None]).squeeze(2)
        sums[0] += mix.ce * float((entropy * known * share).sum())
        if d_hidden is not None:
            scale = (mix.ce * base_share) * known * share
            base = base.softmax(-1).mul_(scale[..., None])
            base.scatter_add_(2, target[..., None], -scale[..., None])
            d_hidden[part] = (base + each.sum(2)) @ head
    return MixtureResult(sums[0], sums[1], sums[2], d_codes, d_output, d_prior, d_hidden)
