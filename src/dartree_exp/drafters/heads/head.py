"""Heads with weights: they turn independent per-slot predictions into path-dependent ones.

A correction head adds a correction to the base logits of a depth's candidates, given a state that
has read the path so far; a latent mixture (`latent.py`) gives a distribution for each category.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import HeadConfig
from dartree_exp.drafters.heads.spec import HEADS

if TYPE_CHECKING:
    from dartree_exp.drafters.heads.confidence import ConfidenceHead


# One state per node, requests concatenated.
State = Float[Tensor, "N S"]
# Teacher-forced blocks: hidden states of drafting slots, ids y_0 (the root) .. y_{D-1}, slots.
Slots = Float[Tensor, "n _ H"]
Tokens = Int64[Tensor, "n D"]
Places = Int64[Tensor, "n _"]
Codes = Float[Tensor, "n _ E"]


class Head(nn.Module, ABC):
    """A head with weights on the hidden states of a block, trained by teacher forcing."""

    key_prefix: str  # prefix of its tensors in a checkpoint
    hidden_size: int

    @classmethod
    @abstractmethod
    def from_config(
        cls, config: Any, hidden_size: int, vocab_size: int, output_size: int | None = None
    ) -> Self:
        """A new head of these sizes. output_size: rows of `AdditiveHead.output`, None =
        vocab_size.
        """

    @abstractmethod
    def config(self, confidence: ConfidenceHead | None = None) -> HeadConfig:
        """Its sizes, including those of its confidence head."""

    @abstractmethod
    def bind(
        self,
        embed_weight: Float[Tensor, "V H"],
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        lm_head: Float[Tensor, "rows H"] | None = None,
    ) -> Self:
        """Set the target's tables and the ids to be drafted; returns self. lm_head: a row for each
        id of the drafting vocabulary or of the whole one; None: the embedding table.
        """

    @abstractmethod
    def taught(
        self,
        base: Float[Tensor, "n D Vd"],
        hidden: Slots,
        previous: Tokens,
        labels: Int64[Tensor, "n D"],
    ) -> Float[Tensor, "n D Vd"]:
        """Logits of teacher-forced blocks, given their base logits. previous: ids y_0 (the root) ..
        y_{D-1}. labels: columns of y_1 .. y_D, -1 where there is none.
        """

    def init_training(self) -> None:
        """Set the weights that training starts from; by default those of a new head."""


class AdditiveHead(Head):
    """A correction head with weights: correction = output @ codes. Subclasses are
    `CorrectionHead`s.
    """

    # name of `output` in the state dict; None: it is the target's vocabulary head
    output_key: str | None
    last_token = False  # a state depends only on the token read last
    reads_block = False  # `codes` needs the hidden states of the whole block, not only of `slots`
    pure_draft_prefix_len: int

    @property
    @abstractmethod
    def output(self) -> Float[Tensor, "V E"]:
        """The weight behind the codes."""

    @abstractmethod
    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        """Codes of teacher-forced blocks, zero at depths that are not corrected.

        hidden: drafting slots only (slot j predicts depth j + 1, in both layouts), at `slots`; all
        D of them for slots = None or `reads_block`.
        """

    def forward(
        self, hidden: Slots, tokens: Tokens, columns: Int64[Tensor, " columns"] | None = None
    ) -> Float[Tensor, "n D _"]:
        """Corrections (of target ids `columns`, if given) for the base logits of the same slots."""
        rows = self.output if columns is None else self.output[columns]
        return F.linear(self.codes(hidden, tokens), rows)

    def taught(
        self,
        base: Float[Tensor, "n D Vd"],
        hidden: Slots,
        previous: Tokens,
        labels: Int64[Tensor, "n D"],
    ) -> Float[Tensor, "n D Vd"]:
        corrected: Tensor = base + self(hidden, previous)
        return corrected


def make_head(
    config: HeadConfig | None, hidden_size: int, vocab_size: int, output_size: int | None = None
) -> Head | None:
    """The head of a config, newly initialised, or None. output_size: rows of its output, None =
    vocab_size.
    """
    if config is None:
        return None
    made: Head = HEADS[config.kind].load().from_config(config, hidden_size, vocab_size, output_size)
    return made
