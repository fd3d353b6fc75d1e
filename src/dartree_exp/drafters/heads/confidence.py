"""DSpark's confidence head (arXiv 2607.05147): the probability that a draft is accepted, given that
all drafts before it were.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import HeadConfig
from dartree_exp.drafters.heads.head import Head


class ConfidenceHead(nn.Module):
    """logit = proj [h ; W1[x]] with h the hidden state of the draft's slot and x the token before
    it, or proj h (rank 0).

    W1 belongs to the Markov head: call `bind` before use if rank > 0.
    """

    key_prefix = "confidence_head."

    def __init__(self, hidden_size: int, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.proj = nn.Linear(hidden_size + rank, 1)
        # Not in the state dict: W1 belongs to the Markov head, temperatures have their own file.
        self._tokens: tuple[Tensor, ...] = ()
        self.temperatures: Tensor | None = None  # float32 [D] (`training/calibrate.py`)

    def bind(self, head: Any) -> ConfidenceHead:
        """Use W1 of `head`; returns self."""
        self._tokens = (head.markov_w1.weight,)
        return self

    def forward(
        self,
        hidden: Float[Tensor, "*slots H"],
        previous: Int64[Tensor, "*slots"],
        reach: bool = False,
    ) -> Float[Tensor, "*slots"]:
        """Logits for hidden states of slots and the preceding ids. reach: gradients flow to the
        hidden states and to W1.
        """
        hidden = (hidden if reach else hidden.detach()).to(self.proj.weight.dtype)
        if self.rank:
            if not self._tokens:
                raise RuntimeError("ConfidenceHead: call bind(head) with the Markov head first")
            table = self._tokens[0] if reach else self._tokens[0].detach()
            hidden = torch.cat([hidden, F.embedding(previous, table)], dim=-1)
        return self.proj(hidden).squeeze(-1)

    def probability(
        self,
        hidden: Float[Tensor, "*drafts H"],
        previous: Int64[Tensor, "*drafts"],
        depth: Int64[Tensor, "*drafts"],
    ) -> Float32[Tensor, "*drafts"]:
        """Acceptance probability of drafts at `depth`, calibrated if there are temperatures."""
        logits = self(hidden, previous).float()
        if self.temperatures is not None:
            table = self.temperatures.to(logits.device)
            logits = logits / table[(depth - 1).clamp(max=len(table) - 1)]  # of longer blocks too
        return torch.sigmoid(logits)


def make_confidence(config: HeadConfig | None, hidden_size: int) -> ConfidenceHead | None:
    """The confidence head of a config, newly initialised, or None."""
    if config is None or config.confidence_rank is None:
        return None
    return ConfidenceHead(hidden_size, config.confidence_rank)


def bind_confidence(confidence: ConfidenceHead | None, head: Head | None) -> ConfidenceHead | None:
    """`confidence`, bound to W1 of `head`, the Markov head it is stored or trained with."""
    if confidence is not None and head is not None:
        confidence.bind(head)
    return confidence
