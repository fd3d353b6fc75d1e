"""The correction head of a checkpoint and its sizes. Does not import torch.

Domino and SpecForge's DSpark have them in `dflash_config`, DeepSpec's DSpark at the top level of
`config.json`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, Self

from dartree_exp.drafters.heads.spec import HEADS, NO_HEAD, PRIORS
from dartree_exp.drafters.values import CheckpointError, check_integer, check_size, flag, shown

Get = Callable[..., Any]
Need = Callable[[str], Any]


class HeadSizes(Protocol):
    """The sizes in a training's settings; each head reads its own."""

    @property
    def rank(self) -> int: ...  # of the GRU head's output
    @property
    def gru_width(self) -> int: ...
    @property
    def pure_prefix(self) -> int: ...
    @property
    def markov_rank(self) -> int: ...
    @property
    def swiglu_width(self) -> int: ...
    @property
    def latents(self) -> int: ...
    @property
    def latent_rank(self) -> int: ...
    @property
    def latent_prior(self) -> str: ...


class HeadConfig(ABC):
    """The sizes of a head, as in `config.json`.

    deepspec: they are at the top level (DeepSpec's layout), not in `dflash_config`. alone: it may
    have a folder of its own, without its backbone.
    """

    kind: str  # name of its spec
    pure_draft_prefix_len: int  # depths that keep the base logits
    deepspec: ClassVar[bool] = False
    alone: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def read(cls, projector: str | None, get: Get, need: Need) -> Self | None:
        """The sizes in a `config.json`; None if it has no head. get, need: look up a key; `need`
        raises if it is missing. Raises CheckpointError.
        """

    @classmethod
    @abstractmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> Self:
        """The sizes of a new head, for training."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The keys and values of `config.json`."""

    @property
    def confidence_rank(self) -> int | None:
        """Width of the confidence head's input from the previous token; None: no such head."""
        return None


@dataclass(frozen=True)
class GRUHeadConfig(HeadConfig):
    """Domino: E = `emb_dim`, G = `gru_hidden_dim`; depths up to `pure_draft_prefix_len` keep the
    base logits.
    """

    emb_dim: int
    gru_hidden_dim: int
    pure_draft_prefix_len: int
    kind = "gru"

    def __post_init__(self) -> None:
        if not (self.emb_dim and self.gru_hidden_dim):
            raise CheckpointError("emb_dim, gru_hidden_dim: a domino head needs both")
        check_size("emb_dim", self.emb_dim)
        check_size("gru_hidden_dim", self.gru_hidden_dim)
        check_integer("pure_draft_prefix_len", self.pure_draft_prefix_len)

    @classmethod
    def read(cls, projector: str | None, get: Get, need: Need) -> Self:
        emb_dim = get("emb_dim")
        return cls(emb_dim, get("gru_hidden_dim", emb_dim), need("pure_draft_prefix_len"))

    @classmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> Self:
        return cls(sizes.rank, sizes.gru_width, sizes.pure_prefix)

    def to_json(self) -> dict[str, Any]:
        return {"projector_type": "domino", **asdict(self)}


@dataclass(frozen=True)
class MarkovHeadConfig(HeadConfig):
    """DSpark: r = `markov_rank`; every slot is corrected, including the first.

    The confidence head belongs to it: absent, reading only the slot's hidden state, or also W1 of
    the previous token.
    """

    markov_rank: int
    markov_head_type: str
    enable_confidence_head: bool
    confidence_head_with_markov: bool
    pure_draft_prefix_len = 0
    deepspec: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        kinds = {spec.released: spec.name for spec in HEADS.values() if spec.released}
        if not isinstance(self.markov_head_type, str) or self.markov_head_type not in kinds:
            raise CheckpointError(
                f"markov_head_type = {shown(self.markov_head_type)}: allowed are {', '.join(kinds)}"
            )
        check_size("markov_rank", self.markov_rank)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return next(s.name for s in HEADS.values() if s.released == self.markov_head_type)

    @property
    def confidence_rank(self) -> int | None:
        if not self.enable_confidence_head:
            return None
        return self.markov_rank if self.confidence_head_with_markov else 0

    @classmethod
    def read(cls, projector: str | None, get: Get, need: Need) -> Self | None:
        rank = need("markov_rank") if projector else get("markov_rank", 0)
        if projector and not rank:
            raise CheckpointError(f"markov_rank = {shown(rank)}: must be at least 1")
        confident = flag("enable_confidence_head", get("enable_confidence_head"))
        if rank is None or rank == 0:  # DeepSpec's "DFlash" is its DSpark model without a head
            if confident:
                raise CheckpointError(
                    "enable_confidence_head = true: not supported without a Markov head "
                    "(markov_rank = 0)"
                )
            return None
        key = "confidence_head_with_markov"
        reads_token = flag(key, need(key)) if confident else False
        return cls(rank, need("markov_head_type"), confident, reads_token)

    @classmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> Self:
        """With a confidence head that reads the previous token."""
        released = HEADS[kind].released
        assert released is not None
        return cls(sizes.markov_rank, released, True, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SwiGLUHeadConfig(HeadConfig):
    """TreeFlash: I = `inner_dim`, the inner width of the SwiGLU."""

    inner_dim: int
    pure_draft_prefix_len = 0
    kind = "swiglu"
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size("inner_dim", self.inner_dim)

    @classmethod
    def read(cls, projector: str | None, get: Get, need: Need) -> Self:
        return cls(need("inner_dim"))

    @classmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> Self:
        return cls(sizes.swiglu_width)

    def to_json(self) -> dict[str, Any]:
        return {"projector_type": "treeflash", **asdict(self)}


@dataclass(frozen=True)
class LatentHeadConfig(HeadConfig):
    """DBLast: `num_latents` categories, offsets of rank `latent_rank`; `latent_prior`: what the
    categorical prior reads, the slot of depth 1 or the root's embedding.
    """

    num_latents: int
    latent_rank: int
    latent_prior: str
    pure_draft_prefix_len = 0
    kind = "latent"
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size("num_latents", self.num_latents)
        check_size("latent_rank", self.latent_rank)
        if self.latent_prior not in PRIORS:
            raise CheckpointError(
                f"latent_prior = {shown(self.latent_prior)}: allowed are {', '.join(PRIORS)}"
            )

    @classmethod
    def read(cls, projector: str | None, get: Get, need: Need) -> Self:
        return cls(need("num_latents"), need("latent_rank"), need("latent_prior"))

    @classmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> Self:
        return cls(sizes.latents, sizes.latent_rank, sizes.latent_prior)

    def to_json(self) -> dict[str, Any]:
        return {"projector_type": "dblast", **asdict(self)}


def fresh(kind: str, sizes: HeadSizes) -> HeadConfig:
    """The sizes of a new head of this kind, for training."""
    made: HeadConfig = HEADS[kind].load_config().fresh(kind, sizes)
    return made


def read_head(projector: Any, get: Get, need: Need) -> HeadConfig | None:
    """The head of a config. get, need: look up a key; `need` raises if it is missing. Raises
    CheckpointError.
    """
    for spec in HEADS.values():
        if projector in spec.projectors:
            found: HeadConfig | None = spec.load_config().read(projector, get, need)
            return found
    named = dict.fromkeys(n for spec in HEADS.values() for n in spec.projectors if n)
    raise CheckpointError(
        f"projector_type = {shown(projector)}: allowed are none, {', '.join(named)}"
    )


def wrong_head(found: HeadConfig | None, asked: str) -> str | None:
    """Why a checkpoint cannot be used with the head `asked` (a kind, or none); None if it can."""
    if asked == NO_HEAD or (found is not None and found.kind == asked):
        return None
    if found is None:
        return "has no correction head; use drafter.head=none (drafter=dflash)"
    return f"has a {found.kind} head; use drafter.head={found.kind}, or none for the backbone alone"
