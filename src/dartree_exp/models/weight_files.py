"""The safetensors files of a folder: names, headers and a check for non-finite numbers.

Used for targets and drafters. Headers are read without the tensors. Importing this does not import
torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from dartree_exp.records.reading import UnreadableError, read_object, refuse_pointer

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = ("F64", "F32", "F16", "BF16")
"""Supported floating-point types; narrower ones belong to quantised weights."""
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Header:
    """The header of a tensor. dtype: safetensors' name, such as BF16."""

    shape: tuple[int, ...]
    dtype: str
    file: Path


def weight_files(folder: Path, weights: str = WEIGHTS) -> list[Path]:
    """The file `weights`, else all shards of the index. Raises UnreadableError if one is
    missing.
    """
    if (folder / weights).is_file():
        files = [folder / weights]
    elif (folder / INDEX).is_file():
        files = [folder / name for name in _shards(folder / INDEX)]
    else:
        raise UnreadableError(
            f"{folder}: neither {weights} nor {INDEX}; other weight formats are not supported"
        )
    for file in files:
        if not file.is_file():
            raise UnreadableError(f"{folder / INDEX}: names {file.name}, which does not exist")
        refuse_pointer(file)
    return files


def headers(files: Iterable[Path]) -> dict[str, Header]:
    """{name: header} of every tensor. Raises UnreadableError for a damaged file or a tensor stored
    twice.
    """
    found: dict[str, Header] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as stored:
                for name in stored.keys():  # noqa: SIM118  # not a mapping
                    part = stored.get_slice(name)
                    if name in found:
                        raise UnreadableError(f"{file}: tensor {name} is stored twice")
                    found[name] = Header(tuple(part.get_shape()), str(part.get_dtype()), file)
        except (OSError, SafetensorError) as error:
            raise UnreadableError(f"weight file {file} is damaged: {error}") from error
    return found


def non_finite(tensor: Tensor) -> str | None:
    """`NaN` or `infinity` if a floating-point tensor contains one, else None. One pass, no copy."""
    import torch

    if not tensor.is_floating_point() or not tensor.numel():
        return None
    low, high = (value.item() for value in torch.aminmax(tensor))  # both NaN if any element is
    if math.isnan(low):
        return "NaN"
    return "infinity" if math.isinf(low) or math.isinf(high) else None


def _shards(index: Path) -> list[str]:
    mapping = read_object(index).get("weight_map")
    names = (
        set(mapping.values())
        if isinstance(mapping, dict) and _all_text(mapping.values())
        else set()
    )
    if not names:
        raise UnreadableError(f"{index}: weight_map must name the file of every tensor")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UnreadableError(
                f"{index}: weight_map names {name!r}: must be a *.safetensors file in the same "
                "folder"
            )
    return sorted(names)


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
