"""The target's folder as training reads it: `config.json` and one `model.safetensors`, with what
must be in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from dartree_exp.models.fetch import ensure
from dartree_exp.records.reading import read_object, refuse_pointer
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError, first_line

EMBEDDED = "smollm2_135m"
WEIGHTS = "model.safetensors"
_SIZES = (
    *(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ),
    *("vocab_size", "max_position_embeddings"),
)


def target_folder(given: Path | None) -> Path:
    """The folder of `--target`, checked, by default the embedded target's. Raises UserError."""
    if given is None:
        return ensure(EMBEDDED)
    if not given.is_dir():
        raise InputError(f"--target {given}: no such folder")
    read_target_config(given)
    if not (given / WEIGHTS).is_file():
        raise InputError(f"--target {given}: has no {WEIGHTS}; training reads a target in one file")
    refuse_pointer(given / WEIGHTS)
    return given


def read_target_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Raises UserError where it is no Llama's or lacks a size."""
    config = read_object(folder / "config.json")
    if config.get("model_type") != "llama":
        raise InputError(
            f"{folder}: model_type = {config.get('model_type')!r}; training reads targets of type "
            "'llama'"
        )
    for key in _SIZES:
        if type(config.get(key)) is not int or config[key] < 1:
            raise InputError(
                f"{folder}/config.json: {key} = {config.get(key)!r}: must be an integer of at "
                "least 1"
            )
    for key in ("rope_theta", "rms_norm_eps"):
        if not isinstance(config.get(key), int | float) or not config[key] > 0:
            raise InputError(
                f"{folder}/config.json: {key} = {config.get(key)!r}: must be a number above 0"
            )
    return config


@contextmanager
def reading_weights(folder: Path) -> Iterator[None]:
    """Turn a damaged or incomplete weights file into InputError."""
    try:
        yield
    except (SafetensorError, KeyError, OSError) as error:
        raise InputError(f"{folder / WEIGHTS}: cannot be read ({first_line(error)})") from error


def check_samples(samples: list[Sample], config: dict[str, Any], text: Path) -> None:
    """Raises InputError for ids that the target does not have and for samples that are too long for
    it.
    """
    for sample in samples:
        if max(sample.ids) >= config["vocab_size"]:
            raise InputError(
                f"{text}: sample {sample.id!r} has id {max(sample.ids)}; the target has "
                f"{config['vocab_size']}"
            )
        if len(sample.ids) > config["max_position_embeddings"]:
            limit = config["max_position_embeddings"]
            raise InputError(
                f"{text}: sample {sample.id!r} has {len(sample.ids)} tokens; the target takes "
                f"{limit}"
            )


def check_taps(taps: tuple[int, ...], config: dict[str, Any]) -> None:
    """Raises InputError for layers the target lacks; the last one's output is not used as a
    feature.
    """
    last = config["num_hidden_layers"] - 2
    if not taps or len(set(taps)) < len(taps) or not all(0 <= tap <= last for tap in taps):
        raise InputError(
            f"taps = {' '.join(map(str, taps))}: must be distinct layers in 0..{last} of this "
            "target"
        )
