"""The objective of Medusa heads (arXiv 2401.10774, section 2.2.1): the sum over heads of the cross
entropy of the data token, with the target frozen.

Head i of position t is used when the token at t + 1 is the root, and says the token at t + 2 + i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.drafters.medusa.model import MedusaHeads

NO_LABEL = -100


@dataclass(frozen=True)
class HeadsLoss:
    """total: what is minimised. by_head, right: cross entropy, and share of positions where the
    head's best token is the label, over the positions that have one (0 without any).
    """

    total: Float[Tensor, ""]
    by_head: Float[Tensor, " K"]
    right: Float[Tensor, " K"]


def labels(
    ids: Int64[Tensor, "*batch L"], answer: Bool[Tensor, "*batch L"], heads: int
) -> Int64[Tensor, "*batch L K"]:
    """The token that each head of each position must say; NO_LABEL where there is none.

    answer: the tokens that the target wrote. A position counts if its root and its label are such.
    """
    length = ids.shape[-1]
    found = torch.full((*ids.shape, heads), NO_LABEL, device=ids.device)
    for i in range(min(heads, length - 2)):
        ahead = ids[..., 2 + i :]
        counts = answer[..., 2 + i :] & answer[..., 1 : length - 1 - i]
        found[..., : length - 2 - i, i] = ahead.where(counts, NO_LABEL)
    return found


def heads_loss(
    heads: MedusaHeads,
    hidden: Float[Tensor, "*batch L H"],
    ids: Int64[Tensor, "*batch L"],
    answer: Bool[Tensor, "*batch L"],
    lm_head: Float[Tensor, "V H"] | None = None,
) -> HeadsLoss:
    """hidden: the target's final-normed hidden states. lm_head: the target's, for heads that have
    none. One head's logits are in memory at a time, of the positions that have a label.
    """
    wanted = labels(ids, answer, len(heads))
    tables = heads.projections()
    if not tables:
        assert lm_head is not None, "these heads use the target's lm_head"
        tables = [lm_head] * len(heads)
    losses, right = [], []
    for i, (head, table) in enumerate(zip(heads.each(), tables, strict=True)):
        chosen = wanted[..., i] != NO_LABEL
        label = wanted[..., i][chosen]
        logits = F.linear(head[: heads.num_layers](hidden[chosen]), table).float()
        count = max(len(label), 1)
        losses.append(F.cross_entropy(logits, label, reduction="sum") / count)
        right.append((logits.argmax(-1) == label).sum() / count)
    by_head = torch.stack(losses)
    return HeadsLoss(by_head.sum(), by_head.detach(), torch.stack(right))
