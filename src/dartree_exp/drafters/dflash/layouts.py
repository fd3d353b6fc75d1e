"""Keys that differ between released `config.json` files: slot layout and rotary base; and variants
that are not supported. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dartree_exp.drafters.values import (
    CheckpointError,
    check_size,
    flag,
    positive,
    section,
    shown,
    texts,
)

DFLASH, DEEPSPEC = "DFlashDraftModel", "Qwen3DSparkModel"
ARCHITECTURES = (DFLASH, "DominoDraftModel", DEEPSPEC)


def default_target_layer_ids(num_draft_layers: int, num_target_layers: int) -> list[int]:
    """DFlash's default target layers: the middle one for a one-layer drafter, else evenly spaced
    from layer 1 to layer L - 3, rounded half to even.
    """
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return [round(1 + i * step) for i in range(num_draft_layers)]


def slot_layout(raw: dict[str, Any], own: dict[str, Any], projector: Any) -> bool:
    """True for anchor-first, false for fill-in. A wrong layout costs nearly all acceptance without
    any error. Raises CheckpointError.
    """
    found = {
        key: place[key]
        for key in ("sample_from_anchor", "shift_label")
        for place in (raw, own)
        if place.get(key) is not None
    }
    values = {flag(key, value) for key, value in found.items()}
    if len(values) > 1:
        raise CheckpointError(f"slot layout: {found} contradict each other")
    if values:
        return values.pop()
    if projector is None and own and raw["architectures"][0] == DFLASH:
        return False  # z-lab's DFlash has no key for the layout; it is fill-in.
    if raw["architectures"][0] == DEEPSPEC and raw.get("num_anchors") is not None and not own:
        # DeepSpec's DSpark and "DFlash" are anchor-first. Only DeepSpec writes `num_anchors`;
        # others use the architecture's name for both layouts.
        return True
    raise CheckpointError(
        "slot layout unknown: config.json has neither sample_from_anchor nor "
        "dflash_config.shift_label; add one "
        "(true: slot k predicts root + k + 1; false: slot k predicts root + k)"
    )


CAUSAL_KEYS = ("causal_head", "causal")
"""JetSpec's and NeMo's names in `dflash_config`; newer z-lab code has `is_causal` at the top."""


def causal_in_block(raw: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether a slot sees only itself and earlier slots of its block (JetSpec). The wrong mask
    costs acceptance without any error, so all three names are read. Raises CheckpointError.
    """
    found = {f"dflash_config.{key}": own[key] for key in CAUSAL_KEYS if own.get(key) is not None}
    if raw.get("is_causal") is not None:
        found["is_causal"] = raw["is_causal"]
    values = {flag(key, value) for key, value in found.items()}
    if len(values) > 1:
        raise CheckpointError(f"causal mask: {found} contradict each other")
    return bool(values) and values.pop()


LENGTH_HEAD, LENGTH_WIDTH = "use_thresh_head_two_model", "thresh_head_bottleneck_dim"
DIRECT_LENGTH = "thresh_head_direct_len"


def length_width(get: Callable[..., Any], need: Callable[[str], Any]) -> int | None:
    """Inner width of AdaFlash's length head; None without one. Raises CheckpointError."""
    if not flag(LENGTH_HEAD, get(LENGTH_HEAD)):
        return None
    if not flag(DIRECT_LENGTH, get(DIRECT_LENGTH)):
        raise CheckpointError(
            f"{DIRECT_LENGTH} = {shown(get(DIRECT_LENGTH))}: only true is supported (the head "
            "gives a length; what else it gives, or with which rule, is not stated)"
        )
    width: int = need(LENGTH_WIDTH)
    check_size(LENGTH_WIDTH, width)
    return width


def length_json(width: int | None) -> dict[str, Any]:
    """What `length_width` reads."""
    return {} if width is None else {LENGTH_HEAD: True, DIRECT_LENGTH: True, LENGTH_WIDTH: width}


def rope_theta(raw: dict[str, Any]) -> float:
    """Rotary base from `rope_theta` (transformers 4) or `rope_parameters` (transformers 5). Raises
    CheckpointError, also for scaled rotary embeddings.
    """
    parameters = section(raw, "rope_parameters")
    for name, spec in (
        ("rope_parameters", parameters),
        ("rope_scaling", section(raw, "rope_scaling")),
    ):
        kind = spec.get("rope_type", spec.get("type", "default"))
        if kind != "default":
            raise CheckpointError(f"{name}.rope_type = {shown(kind)}: only 'default' is supported")
    found = [place["rope_theta"] for place in (parameters, raw) if place.get("rope_theta")]
    if not found:
        raise CheckpointError(
            "rope_theta: missing from config.json (top level and rope_parameters)"
        )
    values = {positive("rope_theta", value) for value in found}
    if len(values) > 1:
        raise CheckpointError(f"rope_theta: {shown(found)} contradict each other")
    return values.pop()


def refuse_unsupported(raw: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise CheckpointError for variants that would load but draft wrongly."""
    kinds = set(texts(raw, "layer_types") or ["full_attention"])
    if kinds != {"full_attention"}:
        raise CheckpointError(
            f"layer_types = {shown(sorted(kinds))}: only full_attention is supported"
        )
    if raw.get("attention_bias"):
        raise CheckpointError("attention_bias = true: only false is supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act = {shown(raw['hidden_act'])}: only 'silu' is supported")
    if raw.get("quantization_config"):
        raise CheckpointError("quantization_config: quantised weights are not supported")
    for name in ("use_bias_gate", "use_bias_norm"):
        if own.get(name):
            raise CheckpointError(
                f"dflash_config.{name} = true: this old head variant is not supported"
            )
