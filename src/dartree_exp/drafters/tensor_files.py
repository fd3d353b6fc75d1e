"""The tensors of a checkpoint folder: safetensors files, read whole, compared with what is expected of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartree_exp.drafters.backbone_ref import WEIGHTS
from dartree_exp.drafters.head_config import CheckpointError

INDEX = "model.safetensors.index.json"
LEGACY_PREFIX = "logit_head."  # of Domino's head before its release
RESTRICTION = "t2d"


def weight_files(folder: Path) -> list[Path]:
    """One file, or the shards of an index. Raises CheckpointError where there is neither."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        shards = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / Path(shard).name for shard in sorted(set(shards))]
    raise CheckpointError(f"drafter {folder}: neither {WEIGHTS} nor {INDEX}; pickled weights are never read")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder, under its present name. Raises CheckpointError."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            stored = load_file(file)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"drafter {folder}: {file.name} cannot be read ({error})") from error
        for key, value in stored.items():
            name = key.removeprefix(LEGACY_PREFIX)
            if name in tensors:
                raise CheckpointError(f"drafter {folder}: tensor {name} is stored twice")
            tensors[name] = value
    return tensors


def write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Put the weights file in place whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{WEIGHTS}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS)


def check_tensors(folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]) -> None:
    """Raise CheckpointError naming what is missing, unexpected, or of another shape or kind."""
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        parts = [
            f"{word} tensors {', '.join(names)}"
            for word, names in (("missing", missing), ("unexpected", unexpected))
            if names
        ]
        raise CheckpointError(f"drafter {folder}: {'; '.join(parts)} (against its config.json)")
    for name, shape in expected.items():
        value = tensors[name]
        if value.shape != shape:
            raise CheckpointError(f"drafter {folder}: tensor {name} is {list(value.shape)}, expected {list(shape)}")
        if value.dtype.is_floating_point == (name == RESTRICTION):
            raise CheckpointError(f"drafter {folder}: tensor {name} has dtype {value.dtype}")
