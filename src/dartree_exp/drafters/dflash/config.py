"""The checked `config.json` of the DFlash family. Does not import torch.

There are two released layouts, both a Qwen3 configuration with additions. z-lab DFlash and Domino:
`block_size`, `num_target_layers` and a `dflash_config` section. DeepSpec's DSpark and DFlash:
everything at the top level. Our own addition: a folder with only a head, whose `config.json` has
the name of the backbone's folder (`backbone_ref.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dartree_exp.drafters.dflash.backbone_ref import reference_in
from dartree_exp.drafters.dflash.layouts import (
    ARCHITECTURES,
    CAUSAL_KEYS,
    DEEPSPEC,
    DFLASH,
    causal_in_block,
    default_target_layer_ids,
    length_json,
    length_width,
    refuse_unsupported,
    rope_theta,
    slot_layout,
)
from dartree_exp.drafters.dflash.speculators import is_speculators, released
from dartree_exp.drafters.heads.config import HeadConfig, read_head
from dartree_exp.drafters.values import (
    SIZES,
    CheckpointError,
    check_heads,
    check_integer,
    check_size,
    integers,
    positive,
    section,
    shown,
    texts,
)
from dartree_exp.records.reading import UnreadableError, read_object


@dataclass(frozen=True)
class DFlashConfig:
    """Shape and conventions of one drafter.

    `shift_label`: the slot layout, true = anchor-first (slot k predicts root + k + 1, `block_size`
    drafts), false = fill-in (slot k predicts root + k, slot 0 unused, `block_size` - 1 drafts).
    `causal`: a slot sees only itself and earlier slots of its block (JetSpec). `layout`: the
    released layout, `DFlashDraftModel` (also Domino) or `Qwen3DSparkModel`. `draft_vocab_size`:
    number of target ids in the drafting softmax, None = all. `length_width`: inner width of
    AdaFlash's length head, None = no such head.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None  # None: not stated (speculators)
    shift_label: bool
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 40960
    head: HeadConfig | None = None
    draft_vocab_size: int | None = None
    layout: str = DFLASH
    causal: bool = False
    length_width: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in SIZES and value is not None:
                check_size(field.name, value)
        check_integer("mask_token_id", self.mask_token_id)
        positive("rope_theta", self.rope_theta)
        positive("rms_norm_eps", self.rms_norm_eps)
        if self.block_size < 2 - self.shift_label:
            raise CheckpointError(
                f"block_size = {self.block_size}: leaves no draft with shift_label "
                f"{self.shift_label}"
            )
        check_heads(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise CheckpointError(
                f"mask_token_id = {shown(self.mask_token_id)}: must be in 0..vocab_size-1 = "
                f"0..{self.vocab_size - 1}"
            )
        if self.num_target_layers is not None:
            check_layers(self.target_layer_ids, self.num_target_layers)
        prefix = 0 if self.head is None else self.head.pure_draft_prefix_len
        if not 0 <= prefix <= self.num_drafts:
            raise CheckpointError(
                f"pure_draft_prefix_len = {prefix}: must be in 0..{self.num_drafts}"
            )
        if self.draft_vocab_size is not None and not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise CheckpointError(
                f"draft_vocab_size = {self.draft_vocab_size}: must be in 1..{self.vocab_size}"
            )

    @property
    def num_drafts(self) -> int:
        """D, drafts per block: b in the anchor-first layout, b - 1 in the fill-in layout."""
        return self.block_size if self.shift_label else self.block_size - 1

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> DFlashConfig:
        """Parse a `config.json`. Raises CheckpointError for missing or unsupported values."""
        foreign = is_speculators(raw)
        if foreign:
            raw = released(raw)
        architecture = next(iter(texts(raw, "architectures")), None)
        if architecture not in ARCHITECTURES:
            raise CheckpointError(
                f"architectures = {shown(raw.get('architectures'))}: allowed are "
                f"{', '.join(ARCHITECTURES)}"
            )
        own = section(raw, "dflash_config")
        sizes = [place["block_size"] for place in (own, raw) if place.get("block_size") is not None]
        for size in sizes:
            check_size("block_size", size)
        if len(set(sizes)) > 1:
            raise CheckpointError(f"block_size: {shown(sizes)} contradict each other")
        refuse_unsupported(raw, own)

        def get(key: str, default: Any = None) -> Any:
            return own[key] if own.get(key) is not None else raw.get(key, default)

        def need(key: str) -> Any:
            value = get(key)
            if value is None:
                raise CheckpointError(
                    f"{key}: missing from config.json (top level and dflash_config)"
                )
            return value

        projector = own.get("projector_type")
        layers = need("num_hidden_layers")
        # The speculators format names the layers, so it need not say how many there are.
        target_layers = raw.get("num_target_layers") if foreign else need("num_target_layers")
        hidden, heads = need("hidden_size"), need("num_attention_heads")
        for key, size in (
            ("num_hidden_layers", layers),
            ("num_target_layers", target_layers),
            ("hidden_size", hidden),
            ("num_attention_heads", heads),
        ):
            if size is not None or not foreign:
                check_size(key, size)  # before they are used in computations
        ids = get("target_layer_ids")
        if ids is None:
            ids = default_target_layer_ids(layers, need("num_target_layers"))
        head = read_head(projector, get, need)
        return cls(
            hidden_size=hidden,
            intermediate_size=need("intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=need("num_key_value_heads"),
            head_dim=hidden // heads if get("head_dim") is None else get("head_dim"),
            vocab_size=need("vocab_size"),
            block_size=need("block_size"),
            mask_token_id=need("mask_token_id"),
            target_layer_ids=integers("target_layer_ids", ids),
            num_target_layers=target_layers,
            shift_label=slot_layout(raw, own, projector),
            rope_theta=rope_theta(raw),
            rms_norm_eps=need("rms_norm_eps"),
            max_position_embeddings=need("max_position_embeddings"),
            head=head,
            draft_vocab_size=get("draft_vocab_size"),
            causal=causal_in_block(raw, own),
            length_width=length_width(get, need),
            layout=DEEPSPEC
            if architecture == DEEPSPEC or (head is not None and head.deepspec)
            else DFLASH,
        )

    def to_json(self) -> dict[str, Any]:
        """The `config.json` of the released layout, with the slot layout under all its keys."""
        own: dict[str, Any] = {
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": list(self.target_layer_ids),
            **length_json(self.length_width),
        }
        if self.layout == DEEPSPEC:
            # DeepSpec's model class requires `num_anchors`; only its trainer uses the value.
            own |= {"num_anchors": 512, "markov_rank": 0, "enable_confidence_head": False}
            own |= self.head.to_json() if self.head is not None else {}
        else:
            own |= {"shift_label": self.shift_label} | (
                self.head.to_json() if self.head is not None else {}
            )
            own |= dict.fromkeys(CAUSAL_KEYS, True) if self.causal else {}
            own["block_size"] = self.block_size  # newer readers look here, older ones at the top
            own = {"dflash_config": own}
        top: dict[str, Any] = own | {
            "architectures": [self.layout],
            "model_type": "qwen3",
            "attention_bias": False,
            "block_size": self.block_size,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "max_position_embeddings": self.max_position_embeddings,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "num_target_layers": self.num_target_layers,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,  # transformers 4 reads this, 5 the next
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "sample_from_anchor": self.shift_label,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }
        if self.draft_vocab_size is not None:
            top["draft_vocab_size"] = self.draft_vocab_size
        if self.causal:
            top["is_causal"] = True
        return top


def check_layers(ids: tuple[int, ...], num_layers: int) -> None:
    """Raise CheckpointError for target layers that a target with this number of layers lacks.

    The last layer is refused: its output is normed in the library's list of hidden states, but not
    in a hook.
    """
    last = num_layers - 1
    if not ids or not all(-1 <= i < last for i in ids):
        raise CheckpointError(
            f"target_layer_ids = {shown(list(ids))}: at least one id, each in -1..{last - 1} "
            f"for num_target_layers = {num_layers} (-1 = embeddings; the last layer is not allowed)"
        )


def read_config(folder: Path) -> DFlashConfig:
    """The `config.json` of a checkpoint folder. Raises CheckpointError with the folder and reason.

    For a folder with only a head: the backbone's configuration with this head.
    """
    raw = read_json(folder)
    try:
        reference = reference_in(raw)
        if reference is None:
            return DFlashConfig.from_json(raw)
        head, place = _head_alone(raw), reference.beside(folder)
        if reference_in(read_json(place)) is not None:  # references could form a circle
            raise CheckpointError(
                f"backbone.folder = {reference.folder}: has only a head, not a backbone"
            )
        return replace(read_config(place), head=head)
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def read_json(folder: Path) -> dict[str, Any]:
    """The unchecked `config.json` of a checkpoint folder. Raises CheckpointError."""
    try:
        return read_object(folder / "config.json")
    except UnreadableError as error:
        raise CheckpointError(f"drafter {folder}: no readable config.json: {error}") from error


def _head_alone(raw: dict[str, Any]) -> HeadConfig | None:
    def need(key: str) -> Any:
        if raw.get(key) is None:
            raise CheckpointError(f"{key}: missing from config.json")
        return raw[key]

    return read_head(raw.get("projector_type", "dspark"), raw.get, need)
