"""Correction heads: they turn independent per-slot predictions into path-dependent ones.

A head adds to the base logits of the candidates of a depth, given a state that has read the path so
far.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from dartree_exp.drafters.block import Block
from dartree_exp.drafters.heads.config import GRUHeadConfig, HeadConfig
from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.markov import MarkovHead, make_markov


class CorrectionHead(Protocol):
    """Depth d (1..D) is corrected iff d > `pure_draft_prefix_len`; the state reads every token, the
    root first.

    States are tensors whose dim 0 is nodes. What `prepare` returns is the head's own business and
    lives one round.
    """

    pure_draft_prefix_len: int

    def start(self, root: int) -> Tensor:
        """State [1, S] after reading the root."""

    def prepare(self, block: Block, candidate_ids: Tensor) -> Any:
        """Tables of this round; candidate_ids are target ids, int64 [D, K]."""

    def correction(self, prepared: Any, state: Tensor, depth: int) -> Tensor:
        """[N, K] to add to the base logits of the candidates of `depth`, for N parents."""

    def advance(
        self, prepared: Any, state: Tensor, depth: int, parent: Tensor, token: Tensor
    ) -> Tensor:
        """State [M, S] after reading token [M] at `depth`, below rows parent [M] of `state`."""


class TrainedHead(CorrectionHead, Protocol):
    """A head with weights. All of them have one form, correction = output @ codes, and are trained
    by teacher forcing.
    """

    key_prefix: str  # of its tensors in a checkpoint
    output_key: str  # name of `output` in the state dict
    reads_block: bool  # `codes` needs the hidden states of the whole block, not only of `slots`

    @property
    def output(self) -> nn.Parameter:
        """[V, E]."""

    def bind(self, embed_weight: Tensor, vocab_ids: Tensor | None = None) -> Any:
        """Tell it the target's embedding table [V, H] and the ids int64 [Vd] it will draft; returns
        self.
        """

    def codes(self, hidden: Tensor, tokens: Tensor, slots: Tensor | None = None) -> Tensor:
        """Codes [n, R, E] of teacher-forced blocks, zero at depths that are not corrected.

        hidden: [n, R, H], drafting slots only (slot j predicts depth j + 1, in both layouts), at
        slots int64 [n, R]; all D of them for slots = None or `reads_block`. tokens: int64 [n, D],
        y_0 (the root) .. y_{D-1}.
        """

    def forward(self, hidden: Tensor, tokens: Tensor, columns: Tensor | None = None) -> Tensor:
        """Corrections [n, D, V] (or of int64 target ids `columns`) to add to the base logits of the
        same slots.
        """


Head = GRUHead | MarkovHead


def make_head(
    config: HeadConfig | None, hidden_size: int, vocab_size: int, output_size: int | None = None
) -> Head | None:
    """The correction head a config asks for, freshly initialised. output_size: rows of its output,
    None = vocab_size.
    """
    if config is None:
        return None
    if isinstance(config, GRUHeadConfig):
        rows = output_size or vocab_size
        return GRUHead(
            hidden_size, rows, config.gru_hidden_dim, config.emb_dim, config.pure_draft_prefix_len
        )
    return make_markov(config, hidden_size, vocab_size, output_size)
