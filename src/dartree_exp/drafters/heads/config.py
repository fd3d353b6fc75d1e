"""Which correction head a checkpoint has, and its sizes (torch-free).

Domino writes them into `dflash_config`; DeepSpec's DSpark at the top level of `config.json`;
SpecForge's DSpark into `dflash_config` again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dartree_exp.drafters.values import CheckpointError, check_integer, check_size, flag, shown

DOMINO_NAMES = ("domino", "causal_v5")  # `causal_v5` is the name Domino had before its release.
MARKOV_KINDS = {"vanilla": "markov", "gated": "markov_gated", "rnn": "markov_rnn"}
"""Released name of a Markov head's type, and ours."""


@dataclass(frozen=True)
class GRUHeadConfig:
    """Domino: E = `emb_dim`, G = `gru_hidden_dim`; depths up to `pure_draft_prefix_len` keep the
    base logits.
    """

    emb_dim: int
    gru_hidden_dim: int
    pure_draft_prefix_len: int
    kind: ClassVar[str] = "gru"

    def __post_init__(self) -> None:
        if not (self.emb_dim and self.gru_hidden_dim):
            raise CheckpointError("emb_dim and gru_hidden_dim: a domino head needs both")
        check_size("emb_dim", self.emb_dim)
        check_size("gru_hidden_dim", self.gru_hidden_dim)
        check_integer("pure_draft_prefix_len", self.pure_draft_prefix_len)

    def to_json(self) -> dict[str, Any]:
        return {
            "projector_type": "domino",
            "emb_dim": self.emb_dim,
            "gru_hidden_dim": self.gru_hidden_dim,
            "pure_draft_prefix_len": self.pure_draft_prefix_len,
        }


@dataclass(frozen=True)
class MarkovHeadConfig:
    """DSpark: r = `markov_rank`; every slot is corrected, the first included.

    The confidence head is part of it: absent, reading the slot's hidden state alone, or that and W1
    of the token before.
    """

    markov_rank: int
    markov_head_type: str
    enable_confidence_head: bool
    confidence_head_with_markov: bool
    pure_draft_prefix_len: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not isinstance(self.markov_head_type, str) or self.markov_head_type not in MARKOV_KINDS:
            raise CheckpointError(
                f"markov_head_type = {shown(self.markov_head_type)}: allowed are "
                f"{', '.join(MARKOV_KINDS)}"
            )
        check_size("markov_rank", self.markov_rank)

    @property
    def kind(self) -> str:
        return MARKOV_KINDS[self.markov_head_type]

    def to_json(self) -> dict[str, Any]:
        return {
            "markov_rank": self.markov_rank,
            "markov_head_type": self.markov_head_type,
            "enable_confidence_head": self.enable_confidence_head,
            "confidence_head_with_markov": self.confidence_head_with_markov,
        }


HeadConfig = GRUHeadConfig | MarkovHeadConfig


def read_head(
    projector: Any, get: Callable[..., Any], need: Callable[[str], Any]
) -> HeadConfig | None:
    """The head of a config. get, need: look a key up, `need` refusing its absence. Raises
    CheckpointError.
    """
    if projector in DOMINO_NAMES:
        emb_dim = get("emb_dim")
        return GRUHeadConfig(emb_dim, get("gru_hidden_dim", emb_dim), need("pure_draft_prefix_len"))
    if projector not in (None, "dspark"):
        raise CheckpointError(
            f"projector_type = {shown(projector)}: allowed are none, domino and dspark"
        )
    rank = need("markov_rank") if projector == "dspark" else get("markov_rank", 0)
    if projector == "dspark" and not rank:
        raise CheckpointError(f"markov_rank = {shown(rank)}: must be at least 1")
    if rank is None or rank == 0:  # DeepSpec's "DFlash" is its DSpark model without the head
        if flag("enable_confidence_head", get("enable_confidence_head")):
            raise CheckpointError(
                "enable_confidence_head = true: without a Markov head (markov_rank 0) not supported"
            )
        return None
    confident = flag("enable_confidence_head", get("enable_confidence_head"))
    reads_token = (
        flag("confidence_head_with_markov", need("confidence_head_with_markov"))
        if confident
        else False
    )
    return MarkovHeadConfig(rank, need("markov_head_type"), confident, reads_token)


def wrong_head(found: HeadConfig | None, asked: str) -> str | None:
    """What is wrong with asking a checkpoint for the head `asked` (a kind, or none); None:
    nothing.
    """
    if asked == "none" or (found is not None and found.kind == asked):
        return None
    if found is None:
        return "has no correction head; use drafter.head=none (drafter=dflash)"
    return f"has a {found.kind} head; use drafter.head={found.kind}, or none for the backbone alone"
