"""Drafting with Medusa heads: one block of marginals from the hidden state of the last committed
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.interfaces import Accepted, Block, Commit, Draws, Forward, Opening, Probes, Scorer
from dartree_exp.kernels.packed_linear import packed_linear
from dartree_exp.models.digests import digest_of_files

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


class MedusaDrafter:
    """Medusa heads bound to a target; see `interfaces.Drafter`.

    The hidden state at position t gave the root, which is at t + 1; head i predicts the token at
    t + 2 + i, hence depth i + 1.
    """

    head = None
    confidence = None
    target_layer_ids: tuple[int, ...] = ()

    def __init__(
        self, name: str, target: Target, heads: MedusaHeads, weight_files: Sequence[Path] = ()
    ) -> None:
        self.name = name
        self.num_drafts = self.block_size = len(heads)
        self.max_positions = target.max_positions  # the heads read no positions
        self.heads = heads
        self._weight_files = tuple(weight_files)
        own = heads.projections()
        self._products = [packed_linear(weight) for weight in own or [target.lm_head_weight]]

    @cached_property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weight files; None for modules without files."""
        return digest_of_files(self._weight_files) if self._weight_files else None

    def open(self, opening: Opening) -> MedusaSession:
        return MedusaSession(self, opening)

    @torch.no_grad()
    def block(self, hidden: Tensor) -> Block:
        """The block after a root. hidden: [R, H], of the row before each root."""
        read = self.heads(hidden)  # [R, K, H]
        if len(self._products) == 1:
            logits = self._products[0](read)
        else:
            rows = zip(self._products, read.unbind(-2), strict=True)
            logits = torch.stack([product(row) for product, row in rows], dim=-2)
        return Block(read, logits.float(), None)


class MedusaSession:
    """Nothing is kept between rounds: each commit has the hidden state that is needed."""

    def __init__(self, drafter: MedusaDrafter, opening: Opening) -> None:
        self._drafter, self._scoring = drafter, opening.scoring

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        # A request that has ended has no rows; what is drafted for it is not committed.
        rows = [max(length - 1, 0) for length in commit.lengths]
        last = torch.stack([commit.hidden[r, row] for r, row in enumerate(rows)])
        return self._scoring(self._drafter.block(last), commit, draws)

    def skip(self, commit: Commit) -> Scorer:
        return NoDrafts.after(commit)

    def probes(self, tree: object) -> Probes | None:
        return None

    def after(self, accepted: Accepted, forward: Forward) -> None:
        return None
