"""The heads of a drafter as protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from jaxtyping import Float, Float32, Int64
from torch import Tensor

if TYPE_CHECKING:
    from dartree_exp.interfaces.values import Block


class CorrectionHead(Protocol):
    """Depth d (1..D) is corrected iff d > `pure_draft_prefix_len`; the state reads every token, the
    root first.

    Dim 0 of a state is nodes: those of the first request, then those of the next, the same number
    for each. What `prepare` returns is private to the head and valid for one round.
    """

    pure_draft_prefix_len: int
    last_token: bool  # a state depends only on the token read last

    def start(self, roots: int | tuple[int, ...]) -> Float[Tensor, "R S"]:
        """State after reading each request's root."""

    def prepare(self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]) -> Any:
        """Precomputed tables of this round; candidate_ids are target ids."""

    def correction(
        self, prepared: Any, state: Float[Tensor, "N S"], depth: int
    ) -> Float[Tensor, "N K"]:
        """What to add to the base logits of the candidates of `depth`, for N parents."""

    def advance(
        self,
        prepared: Any,
        state: Float[Tensor, "N S"],
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        """State after reading `token` at `depth`; its parents are rows `parent` of `state`."""


class ConfidenceHead(Protocol):
    """The probability that a draft is accepted if all before it were."""

    def probability(
        self,
        hidden: Float[Tensor, "*drafts H"],
        previous: Int64[Tensor, "*drafts"],
        depth: Int64[Tensor, "*drafts"],
    ) -> Float32[Tensor, "*drafts"]:
        """hidden: of the draft's slot. previous: the token before the draft."""


class LengthHead(Protocol):
    """The tokens that a round with a block is expected to advance, bonus token included."""

    def tokens(self, hidden: Float[Tensor, "*R D H"]) -> Float32[Tensor, "*R"]: ...
