"""EAGLE-3 under training (arXiv 2503.01840, section 3.2): training-time test.

Step 0 reads the target's features. Step i reads the outputs of step i - 1 as features, as drafting
does at depth i + 1: row n then has the token at n + 1 + i and position n + i, sees the text up to
row n of step 0 and row n of the steps between, and says the token at n + 2 + i. So step i of row n
is slot i of the block whose anchor is at n + 1.

A row of a later step sees no other row of that step. Only step 0 is computed at every position; the
later ones at the rows of the anchors.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.training.batches import Batch, picked


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
    following: Int64[Tensor, " L"],
    rows: Int64[Tensor, " A"],
    tokens: Int64[Tensor, "A b"],
    embed: Float[Tensor, "V H"],
) -> Iterator[Float[Tensor, "A H"]]:
    """Outputs of each step at the chosen rows of one text.

    features: the tapped layers of the target at positions 0..L-1. following: the token after each
    of them. tokens: of each chosen row n, those at n + 1 + i that step i reads.
    """
    hidden, keys = model.start(features).to(embed.dtype), _Keys()
    least = torch.finfo(embed.dtype).min
    mask = hidden.new_full((len(features), len(features)), least).triu(1)
    positions = torch.arange(len(features), device=rows.device)
    hidden = model(hidden, F.embedding(following, embed), positions, mask, keys)[rows]
    yield hidden
    mask, alone = mask[rows], hidden.new_full((len(rows), len(rows)), least).fill_diagonal_(0)
    for step in range(1, tokens.shape[1]):
        mask = torch.cat([mask, alone], dim=1)
        hidden = model(hidden, F.embedding(tokens[:, step], embed), rows + step, mask, keys)
        yield hidden


def eagle_hidden(
    model: EagleModel, batch: Batch, embed: Tensor, slots: Tensor | None = None
) -> Tensor:
    """Normed hidden states [S, A, R, H] of slots int64 [S, A, R] (None: all), for the drafter's
    vocabulary head.
    """
    inputs, found = batch.inputs, []
    for sample, anchors in enumerate(inputs.anchors):
        length = int(anchors.max())  # row n of an anchor at n + 1, and the rows before it
        features = inputs.features[inputs.rows[sample, :length]]
        following, tokens = batch.following[sample, :length], batch.previous[sample]
        made = steps(model, features, following, anchors - 1, tokens, embed)
        found.append(torch.stack(list(made), dim=1))
    return model.norm(picked(torch.stack(found), slots))
