"""Checks of a model folder's config.json and generation_config.json, before weights are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dartree_exp.engines.cache import check_rewindable
from dartree_exp.errors import UserError
from dartree_exp.models.weight_files import FLOATS, Header
from dartree_exp.records.reading import read_object

CONFIG, GENERATION = "config.json", "generation_config.json"
EMBED = "model.embed_tokens.weight"

_SIZES = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 14,
    "max_position_embeddings": 1 << 31,
    "sliding_window": 1 << 31,
}
"""Upper bounds: far above any model, but small enough that no check fills the memory."""
_POSITIVE = ("rms_norm_eps", "rope_theta")
_QUANTISED = ("quantization_config", "compression_config", "quantization")
_QUANTISED_FILES = (
    "quantize_config.json",
    "quant_config.json",
    "hf_quant_config.json",
)  # GPTQ, AWQ, ModelOpt


def read_config(folder: Path) -> dict[str, Any]:
    """The checked `config.json` of a target.

    Raises UserError (missing or damaged file, quantised weights, impossible sizes) or
    UnsupportedTargetError with the file, the key and its value.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(f"{folder} has no config.json: not a model folder")
    config = read_object(path)
    _refuse_quantised(folder, config)
    _check_shapes_of_values(path, config)
    check_rewindable(SimpleNamespace(**config))
    return config


def read_eos(folder: Path, config: dict[str, Any], rows: int) -> tuple[int, ...]:
    """All end ids of the generation config (a chat model often has several), else of config.json.

    rows: of the embedding. Raises UserError for a damaged file or invalid ids.
    """
    path = folder / GENERATION
    sources = [(path, read_object(path))] if path.is_file() else []
    for file, values in [*sources, (folder / CONFIG, config)]:
        found = values.get("eos_token_id")
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not ids or not all(
            isinstance(i, int) and not isinstance(i, bool) and 0 <= i < rows for i in ids
        ):
            raise UserError(
                f"{file}: eos_token_id = {found!r}: must be one or more ids in 0..{rows - 1}"
            )
        return tuple(ids)
    return ()


def check_sizes(folder: Path, config: dict[str, Any], stored: Mapping[str, Header]) -> None:
    """Raise UserError if sizes in `config` differ from the stored tensors, or a tensor's dtype is
    not a plain float.

    Checks only what determines the size of the model; the loader compares every tensor.
    """
    for name, header in stored.items():
        if header.dtype not in FLOATS:
            raise UserError(
                f"{header.file}: tensor {name} has dtype {header.dtype}; must be one of "
                f"{', '.join(FLOATS)}"
            )
    layers = {name.split(".")[2] for name in stored if name.startswith("model.layers.")}
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    for key in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    ):
        if config.get(key) is None:
            raise UserError(f"{folder / CONFIG}: {key}: missing")
    assert isinstance(heads, int) and isinstance(hidden, int)  # checked on reading
    kv = config.get("num_key_value_heads") or (heads if config["model_type"] == "llama" else 32)
    dim = config.get("head_dim") or (hidden // heads if config["model_type"] == "llama" else 128)
    if config["num_hidden_layers"] > len(layers):
        raise UserError(
            f"{folder / CONFIG}: num_hidden_layers = {config['num_hidden_layers']}, but the "
            f"weights have {len(layers)} layers"
        )
    if heads % kv or dim % 2:
        raise UserError(
            f"{folder / CONFIG}: num_attention_heads = {heads} must be a multiple of "
            f"num_key_value_heads = {kv}, and head_dim = {dim} must be even"
        )
    first = "model.layers.0."
    expected = {
        EMBED: ("vocab_size, hidden_size", (config["vocab_size"], hidden)),
        f"{first}self_attn.q_proj.weight": (
            "num_attention_heads * head_dim, hidden_size",
            (heads * dim, hidden),
        ),
        f"{first}self_attn.k_proj.weight": (
            "num_key_value_heads * head_dim, hidden_size",
            (kv * dim, hidden),
        ),
        f"{first}mlp.gate_proj.weight": (
            "intermediate_size, hidden_size",
            (config["intermediate_size"], hidden),
        ),
    }
    for name, (keys, shape) in expected.items():
        if name not in stored:
            raise UserError(f"{folder}: missing tensors: {name}")
        if stored[name].shape != shape:
            raise UserError(
                f"{folder / CONFIG}: {keys} = {list(shape)}, but tensor {name} is "
                f"{list(stored[name].shape)}"
            )


def _refuse_quantised(folder: Path, config: dict[str, Any]) -> None:
    advice = "quantised weights are not supported; use the folder of the unquantised model"
    for key in _QUANTISED:
        if config.get(key):
            spec = config[key] if isinstance(config[key], dict) else {}
            kind = spec.get("quant_method") or next(
                (name for name in spec if name.startswith("load_in_")), "of some kind"
            )
            raise UserError(f"{folder / CONFIG}: {key} ({kind}): {advice}")
    for name in _QUANTISED_FILES:
        if (folder / name).exists():
            raise UserError(f"{folder / name}: {advice}")


def _check_shapes_of_values(path: Path, config: dict[str, Any]) -> None:
    for key, most in _SIZES.items():
        value = config.get(key)
        if value is not None and not (
            isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
        ):
            raise UserError(f"{path}: {key} = {_short(value)}: must be an integer from 1 to {most}")
    for place in (config, config.get("rope_parameters"), config.get("rope_scaling")):
        if place is not None and not isinstance(place, dict):
            raise UserError(f"{path}: rope parameters = {_short(place)}: must be an object")
        for key in _POSITIVE:
            value = (place or {}).get(key)
            if value is not None and not _is_positive(value):
                raise UserError(f"{path}: {key} = {_short(value)}: must be a positive number")
    kinds = config.get("layer_types")
    if kinds is not None and not (
        isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
    ):
        raise UserError(f"{path}: layer_types = {_short(kinds)}: must be a list of names")
    if not isinstance(config.get("model_type", ""), str):
        raise UserError(f"{path}: model_type = {_short(config['model_type'])}: must be a name")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
