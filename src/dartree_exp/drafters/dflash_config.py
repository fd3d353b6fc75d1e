"""What a DFlash-family `config.json` says, checked once and kept in one dataclass (torch-free).

Layout of the released z-lab DFlash and Domino checkpoints: a Qwen3 configuration, plus `block_size`,
`num_target_layers` and a `dflash_config` section.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dartree_exp.errors import UserError

ARCHITECTURES = ("DFlashDraftModel", "DominoDraftModel")
DOMINO_NAMES = ("domino", "causal_v5")  # `causal_v5` is the name Domino had before its release.


class CheckpointError(UserError, ValueError):
    """A drafter checkpoint that cannot be used; the message names the key, its value and what is allowed."""


@dataclass(frozen=True)
class DFlashConfig:
    """Shape and conventions of one drafter.

    `shift_label` is the slot layout: true = anchor-first (slot k predicts root + k + 1, `block_size` drafts),
    false = fill-in (slot k predicts root + k, slot 0 unused, `block_size` - 1 drafts).
    `emb_dim` and `gru_hidden_dim` are E and G of the Domino head and None without one.
    `draft_vocab_size` is the number of target ids the drafting softmax is restricted to, None = all of them.
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
    num_target_layers: int
    shift_label: bool
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 40960
    projector_type: str | None = None
    emb_dim: int | None = None
    gru_hidden_dim: int | None = None
    pure_draft_prefix_len: int = 0
    draft_vocab_size: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (not isinstance(value, int) or isinstance(value, bool)):
                raise CheckpointError(f"{field.name} = {value!r}: must be an integer")
        for name in ("hidden_size", "num_hidden_layers", "head_dim", "vocab_size", "num_target_layers"):
            if getattr(self, name) < 1:
                raise CheckpointError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.block_size < 2 - self.shift_label:
            raise CheckpointError(
                f"block_size = {self.block_size}: leaves no draft with shift_label {self.shift_label}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise CheckpointError(
                f"num_attention_heads = {self.num_attention_heads}: must be a multiple of "
                f"num_key_value_heads = {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise CheckpointError(f"head_dim = {self.head_dim}: rotary positions need an even one")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise CheckpointError(
                f"mask_token_id = {self.mask_token_id}: must lie in 0..vocab_size-1 = 0..{self.vocab_size - 1}"
            )
        last = self.num_target_layers - 1
        if not self.target_layer_ids or not all(-1 <= i < last for i in self.target_layer_ids):
            # The output of the last decoder layer is refused: libraries hand it out normed, hooks hand it out raw.
            raise CheckpointError(
                f"target_layer_ids = {list(self.target_layer_ids)}: at least one id, each in -1..{last - 1} "
                f"for num_target_layers = {self.num_target_layers} (-1 = embeddings; the last layer is not allowed)"
            )
        if self.projector_type not in (None, "domino"):
            raise CheckpointError(f"projector_type = {self.projector_type!r}: allowed are none and 'domino'")
        if self.projector_type == "domino" and not (self.emb_dim and self.gru_hidden_dim):
            raise CheckpointError("emb_dim and gru_hidden_dim: a domino head needs both")
        if not 0 <= self.pure_draft_prefix_len <= self.num_drafts:
            raise CheckpointError(
                f"pure_draft_prefix_len = {self.pure_draft_prefix_len}: must lie in 0..{self.num_drafts}"
            )
        if self.draft_vocab_size is not None and not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise CheckpointError(f"draft_vocab_size = {self.draft_vocab_size}: must lie in 1..{self.vocab_size}")

    @property
    def num_drafts(self) -> int:
        """D, drafts per block: b in the anchor-first layout, b - 1 in the fill-in layout."""
        return self.block_size if self.shift_label else self.block_size - 1

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> DFlashConfig:
        """Parse a `config.json`; raises `CheckpointError` for anything missing, unknown or not supported."""
        architecture = (raw.get("architectures") or [None])[0]
        if architecture not in ARCHITECTURES:
            raise CheckpointError(f"architectures = {raw.get('architectures')}: allowed are {', '.join(ARCHITECTURES)}")
        _refuse_unsupported(raw)
        section = raw.get("dflash_config") or {}

        def get(key: str, default: Any = None) -> Any:
            return section[key] if section.get(key) is not None else raw.get(key, default)

        def need(key: str) -> Any:
            value = get(key)
            if value is None:
                raise CheckpointError(f"{key}: missing from config.json (top level and dflash_config)")
            return value

        projector = section.get("projector_type")
        projector = "domino" if projector in DOMINO_NAMES else projector
        domino = projector == "domino"
        layers, target_layers = need("num_hidden_layers"), need("num_target_layers")
        ids = get("target_layer_ids")
        emb_dim = get("emb_dim")
        return cls(
            hidden_size=need("hidden_size"),
            intermediate_size=need("intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=need("num_attention_heads"),
            num_key_value_heads=need("num_key_value_heads"),
            head_dim=get("head_dim") or need("hidden_size") // need("num_attention_heads"),
            vocab_size=need("vocab_size"),
            block_size=need("block_size"),
            mask_token_id=need("mask_token_id"),
            target_layer_ids=tuple(default_target_layer_ids(layers, target_layers) if ids is None else ids),
            num_target_layers=target_layers,
            shift_label=_slot_layout(raw, section, projector),
            rope_theta=_rope_theta(raw),
            rms_norm_eps=need("rms_norm_eps"),
            max_position_embeddings=need("max_position_embeddings"),
            projector_type=projector,
            emb_dim=emb_dim if domino else None,
            gru_hidden_dim=get("gru_hidden_dim", emb_dim) if domino else None,
            pure_draft_prefix_len=need("pure_draft_prefix_len") if domino else 0,
            draft_vocab_size=get("draft_vocab_size"),
        )

    def to_json(self) -> dict[str, Any]:
        """The `config.json` of the released layout, the slot layout written under both of its names."""
        section: dict[str, Any] = {
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": list(self.target_layer_ids),
            "shift_label": self.shift_label,
        }
        if self.projector_type == "domino":
            section |= {
                "projector_type": "domino",
                "emb_dim": self.emb_dim,
                "gru_hidden_dim": self.gru_hidden_dim,
                "pure_draft_prefix_len": self.pure_draft_prefix_len,
            }
        top: dict[str, Any] = {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "attention_bias": False,
            "block_size": self.block_size,
            "dflash_config": section,
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
            "rope_theta": self.rope_theta,
            "sample_from_anchor": self.shift_label,
            "tie_word_embeddings": False,
            "vocab_size": self.vocab_size,
        }
        if self.draft_vocab_size is not None:
            top["draft_vocab_size"] = self.draft_vocab_size
        return top


def read_config(folder: Path) -> DFlashConfig:
    """The `config.json` of a checkpoint folder; raises `CheckpointError` naming the folder and the reason."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise CheckpointError("config.json is not a JSON object")
        return DFlashConfig.from_json(raw)
    except OSError as error:
        raise CheckpointError(f"drafter {folder}: no readable config.json ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"drafter {folder}: config.json is not valid JSON ({error})") from error
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def default_target_layer_ids(num_draft_layers: int, num_target_layers: int) -> list[int]:
    """DFlash's rule where a config names no layers: the middle one for a one-layer drafter, else evenly spaced
    from layer 1 to layer L - 3, rounded half to even."""
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return [round(1 + i * step) for i in range(num_draft_layers)]


def _slot_layout(raw: dict[str, Any], section: dict[str, Any], projector: str | None) -> bool:
    """True for anchor-first, false for fill-in. A wrong guess here costs nearly all acceptance without any error."""
    found = {
        key: place[key]
        for key in ("sample_from_anchor", "shift_label")
        for place in (raw, section)
        if place.get(key) is not None
    }
    values = set(found.values())
    if len(values) > 1 or not values <= {True, False}:
        raise CheckpointError(f"slot layout: {found} contradict each other or are not booleans")
    if values:
        return values.pop()
    if projector is None and section and raw["architectures"][0] == "DFlashDraftModel":
        return False  # z-lab's DFlash defines its blocks so and has no key for it.
    raise CheckpointError(
        "slot layout unknown: config.json has neither sample_from_anchor nor dflash_config.shift_label "
        "(true: slot k predicts root + k + 1; false: slot k predicts root + k); it is never guessed, add the key"
    )


def _rope_theta(raw: dict[str, Any]) -> float:
    """Rotary base from `rope_theta` (transformers 4) or `rope_parameters` (transformers 5); plain rotary only."""
    parameters = raw.get("rope_parameters") or {}
    for name, spec in (("rope_parameters", parameters), ("rope_scaling", raw.get("rope_scaling") or {})):
        kind = spec.get("rope_type", spec.get("type", "default"))
        if kind != "default":
            raise CheckpointError(f"{name}.rope_type = {kind!r}: only 'default' is supported")
    theta = parameters.get("rope_theta", raw.get("rope_theta"))
    if theta is None:
        raise CheckpointError("rope_theta: missing from config.json (top level and rope_parameters)")
    return float(theta)


def _refuse_unsupported(raw: dict[str, Any]) -> None:
    """Variants that would load and draft wrongly are refused."""
    kinds = set(raw.get("layer_types") or ["full_attention"])
    if kinds != {"full_attention"}:
        raise CheckpointError(f"layer_types = {sorted(kinds)}: only full_attention is supported")
    if raw.get("attention_bias"):
        raise CheckpointError("attention_bias = true: only false is supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act = {raw['hidden_act']!r}: only 'silu' is supported")
    section = raw.get("dflash_config") or {}
    for flag in ("use_bias_gate", "use_bias_norm"):
        if section.get(flag):
            raise CheckpointError(f"dflash_config.{flag} = true: this old head variant is not supported")
