"""The tensors of a checkpoint folder: reading, writing and checking safetensors files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.weight_files import FLOATS, WEIGHTS, headers, non_finite
from dartree_exp.models.weight_files import weight_files as files_of
from dartree_exp.records.atomic import replaced
from dartree_exp.records.reading import UnreadableError

LEGACY_PREFIX = "logit_head."  # prefix of Domino's head before its release
RESTRICTION = "t2d"  # true for a target id that is drafted
OFFSETS = "d2t"  # of each draft id: target id - draft id
_MARKS = ("BOOL", "U8", "I8", "I16", "I32", "I64")


def weight_files(folder: Path, weights: str = WEIGHTS) -> list[Path]:
    """One file, or the shards of an index. Raises CheckpointError if missing or damaged."""
    try:
        return files_of(folder, weights)
    except UnreadableError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def read_tensors(
    folder: Path, weights: str = WEIGHTS, marks: Collection[str] = (RESTRICTION,)
) -> dict[str, Tensor]:
    """Every tensor of the folder by its current name. Raises CheckpointError, also for numbers that
    are not finite.

    weights: name of the file. marks: the tensors that hold integers or flags.
    """
    files = weight_files(folder, weights)
    try:
        stored = headers(files)
    except UnreadableError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error
    for key, header in stored.items():
        if header.dtype not in (FLOATS if key not in marks else _MARKS):
            raise CheckpointError(
                f"drafter {folder}: tensor {key} of {header.file.name} has dtype {header.dtype}"
            )
    tensors: dict[str, Tensor] = {}
    for file in files:
        for key, value in load_file(file).items():
            name = key.removeprefix(LEGACY_PREFIX)
            if name in tensors:
                raise CheckpointError(f"drafter {folder}: tensor {name} is stored twice")
            if (what := non_finite(value)) is not None:
                raise CheckpointError(f"drafter {folder}: tensor {key} of {file.name} holds {what}")
            tensors[name] = value
    return tensors


def write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write the weights file atomically. Raises RecordError, for instance if the disk is full."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, tensors, {"format": "pt"})


def write_whole(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write one safetensors file atomically. Raises RecordError, for instance for a full disk."""
    with replaced(path) as part:
        try:
            save_file(tensors, str(part), metadata=header)
        except SafetensorError as error:
            raise _system_error(error) from error


def _system_error(error: SafetensorError) -> OSError:
    """The OSError behind a SafetensorError, whose text has the error number."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))


def drafted_ids(offsets: Tensor, marks: Tensor) -> Tensor:
    """int64 [Vd], the target id of each draft id. offsets: [Vd]; marks: [V]. Raises CheckpointError
    if the two contradict each other.
    """
    ids = offsets.long() + torch.arange(len(offsets))
    if not torch.equal(ids.sort().values, marks.nonzero().flatten()):
        raise CheckpointError(
            f"{OFFSETS} and {RESTRICTION} name different target ids; {OFFSETS} must be target id - "
            "draft id"
        )
    return ids


def check_tensors(
    folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]
) -> None:
    """Raise CheckpointError for tensors that are missing, unexpected or of the wrong shape."""
    missing, unexpected = (
        sorted(expected.keys() - tensors.keys()),
        sorted(tensors.keys() - expected.keys()),
    )
    if missing or unexpected:
        parts = [
            f"{word} tensors {', '.join(names)}"
            for word, names in (("missing", missing), ("unexpected", unexpected))
            if names
        ]
        raise CheckpointError(f"drafter {folder}: {'; '.join(parts)} (compared with config.json)")
    for name, shape in expected.items():
        value = tensors[name]
        if value.shape != shape:
            raise CheckpointError(
                f"drafter {folder}: tensor {name} is {list(value.shape)}, expected {list(shape)}"
            )
