"""The objective of EAGLE-3 (arXiv 2503.01840, section 3.2): training-time test.

Step 0 reads the target's features. Step i reads the outputs of step i - 1 as features, as drafting
does at depth i + 1: row n then has the token at n + 1 + i and position n + i, sees the text up to
row n of step 0 and row n of the steps between, and says the token at n + 2 + i.

    loss = sum_i 0.8^i mean_n [ - sum_v p(v) log q_i(v) ]

p: the target's distribution over the draft vocabulary, renormalised. Rows whose most likely token
is outside of it count as 0, and the mean is over all rows, as in the release.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.drafters.eagle.model import EagleModel

STEPS, DECAY = 7, 0.8


@dataclass(frozen=True)
class StepsLoss:
    """total: what is minimised. by_step: its terms without the weights 0.8^i. right: share of the
    counted rows where the drafter's best token is the target's.
    """

    total: Float[Tensor, ""]
    by_step: Float[Tensor, " steps"]
    right: Float[Tensor, " steps"]


class _Keys:
    """The keys and values of all steps so far; gradients pass through them, unlike through a
    `DraftCache`.
    """

    def __init__(self) -> None:
        self._found: tuple[Tensor, Tensor] | None = None

    def reserve(self, rows: int) -> None:
        return None

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self._found is not None:
            keys, values = (
                torch.cat(pair, dim=2) for pair in zip(self._found, (keys, values), strict=True)
            )
        self._found = keys, values
        return self._found


def steps(
    model: EagleModel,
    features: Float[Tensor, "L F"],
    ids: Int64[Tensor, " L"],
    embed: Float[Tensor, "V H"],
    count: int = STEPS,
) -> Iterator[Float[Tensor, "L-1 Vd"]]:
    """Logits of each step of one text. Of step i, the last i rows have no token and mean nothing.

    features: the tapped layers of the target, at every position.
    """
    rows = len(ids) - 1
    hidden, keys = model.start(features[:-1]), _Keys()
    least = torch.finfo(hidden.dtype).min
    mask = hidden.new_full((rows, rows), least).triu(1)
    alone = hidden.new_full((rows, rows), least).fill_diagonal_(0)
    for step in range(count):
        tokens = F.pad(ids[1 + step :], (0, min(step, rows)))[:rows]
        positions = torch.arange(rows, device=ids.device) + step
        embeds = F.embedding(tokens, embed).to(hidden.dtype)
        hidden = model(hidden, embeds, positions, mask, keys)
        yield model.logits(hidden)
        mask = torch.cat([mask, alone], dim=1)


def steps_loss(
    model: EagleModel,
    features: Float[Tensor, "L F"],
    ids: Int64[Tensor, " L"],
    embed: Float[Tensor, "V H"],
    teacher: Float[Tensor, "L V"],
    answer: Bool[Tensor, " L"],
    vocab_ids: Int64[Tensor, " Vd"] | None = None,
    count: int = STEPS,
) -> StepsLoss:
    """teacher: the target's logits at every position (of the next token). answer: the tokens that
    the target wrote; only these are learnt. vocab_ids: target ids of the draft vocabulary.
    """
    inside = torch.ones(teacher.shape[-1], dtype=torch.bool, device=teacher.device)
    wanted = teacher.float()
    if vocab_ids is not None:
        inside = torch.zeros_like(inside).index_fill(0, vocab_ids, True)
        wanted = wanted[:, vocab_ids]
    known = inside[teacher.argmax(-1)]  # whether the likeliest token can be drafted
    p, best = wanted.softmax(-1), wanted.argmax(-1)
    rows, losses, right = len(ids) - 1, [], []
    for step, logits in enumerate(steps(model, features, ids, embed, count)):
        left = max(rows - 1 - step, 0)  # rows n whose token at n + 2 + step is in the text
        at = slice(1 + step, 1 + step + left)
        counted = known[at] & answer[2 + step : 2 + step + left]
        log_q = logits[:left].float().log_softmax(-1)
        terms = -(p[at] * log_q).sum(-1) * counted
        losses.append(terms.sum() / rows)
        hits = (log_q.argmax(-1) == best[at]) & counted
        right.append(hits.sum() / counted.sum().clamp(min=1))
    by_step = torch.stack(losses)
    weights = DECAY ** torch.arange(count, device=by_step.device)
    return StepsLoss((weights * by_step).sum(), by_step.detach(), torch.stack(right))
