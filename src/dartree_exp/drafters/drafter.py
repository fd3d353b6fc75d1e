"""What the decode loop needs of a drafter, whatever makes the proposals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from dartree_exp.drafters.block import Block
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.head import CorrectionHead


class Draws(Protocol):
    """The target's decision rule, as far as a scripted drafter uses it."""

    def choose(self, logits: Tensor, position: int) -> int:
        """The token at an absolute position, given the target's logits [V] for it."""


class Session(Protocol):
    """The drafting of one prompt."""

    def propose(self, features: Tensor | None, root: int, start: int) -> Block:
        """One block after the root, whose absolute position is `start`.

        features: [C, n*H], the target's tapped hidden states of the C tokens committed since the
        last call (the whole prompt at first, later the last round's root and accepted drafts); None
        for a drafter without taps. Raises ValueError where they do not reach `start` exactly.
        """


class Drafter(Protocol):
    """A drafter bound to one target."""

    name: str
    num_drafts: int  # D, the deepest draft of a block
    block_size: int  # b, slots of a block
    target_layer_ids: tuple[int, ...]  # taps it reads; id i is the output of decoder layer i
    max_positions: int  # a block may use positions 0..max_positions-1; beyond, decode plainly
    head: CorrectionHead | None
    confidence: (
        ConfidenceHead | None
    )  # how likely a draft is accepted, for the budget policy of that name

    @property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weights; None where there are no weight files."""

    def session(self, prompt_ids: Sequence[int], sampler: Draws | None = None) -> Session:
        """A fresh session for a prompt. sampler: the target's, None for greedy; trained drafters
        ignore it.
        """
