"""Feature shards on disk: one safetensors file per group of samples, written whole or not at all.

A shard holds, for its samples one after another: `ids` int32 [T], `lengths` and `prompt_lengths`
int32 [S], and `features` bfloat16 [T, n * hidden] (bfloat16 because attention-sink positions reach
2e4, near float16's limit). The header records the sample ids and the taps, so that a shard of
another run is refused rather than mixed in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.drafters.tensor_files import write_whole
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError, first_line


@dataclass(frozen=True)
class Shard:
    """A loaded shard; tensors may be memory-mapped."""

    names: list[str]
    domains: list[str]
    ids: Tensor
    lengths: Tensor
    prompt_lengths: Tensor
    features: Tensor


def shard_path(folder: Path, index: int) -> Path:
    """File of the shard with this number."""
    return folder / f"shard_{index:04d}.safetensors"


def shards_from(folder: Path, first: int) -> int:
    """The number of shards on disk from this one on, without a gap."""
    count = 0
    while shard_path(folder, first + count).exists():
        count += 1
    return count


def finals_path(folder: Path, index: int) -> Path:
    """File of the final hidden states of the shard with this number."""
    return folder / f"finals_{index:04d}.safetensors"


def write_finals(path: Path, finals: Tensor) -> None:
    """Write bfloat16 [T, H] atomically (RecordError where that fails)."""
    write_whole(path, {"finals": finals.to(torch.bfloat16).contiguous()}, {})


def read_finals(folder: Path, index: int, tokens: int) -> Tensor:
    """The final hidden states of a shard with this number of tokens, bfloat16 [tokens, H].

    Raises InputError: no file, a damaged one, or of another number of tokens.
    """
    from safetensors import SafetensorError, safe_open

    path = finals_path(folder, index)
    if not path.exists():
        raise InputError(f"{path}: does not exist; run dartree_exp.training.finals")
    try:
        with safe_open(str(path), framework="pt") as handle:
            finals: Tensor = handle.get_tensor("finals")
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path}: damaged ({first_line(error)}); delete it and run dartree_exp.training.finals"
        ) from error
    if len(finals) != tokens:
        raise InputError(f"{path}: of {len(finals)} tokens, its shard has {tokens}; delete it")
    return finals


def write_shard(path: Path, samples: list[Sample], features: Tensor, taps: tuple[int, ...]) -> None:
    """Write atomically (RecordError where that fails); features float [T, n * hidden] in the order
    of the samples' tokens.
    """
    tensors = {
        "ids": torch.tensor([i for s in samples for i in s.ids], dtype=torch.int32),
        "lengths": torch.tensor([len(s.ids) for s in samples], dtype=torch.int32),
        "prompt_lengths": torch.tensor([len(s.prompt_ids) for s in samples], dtype=torch.int32),
        "features": features.to(torch.bfloat16).contiguous(),
    }
    header = {
        "names": json.dumps([s.id for s in samples]),
        "domains": json.dumps([s.domain for s in samples]),
        "taps": json.dumps(list(taps)),
    }
    write_whole(path, tensors, header)


def read_shard(path: Path, taps: tuple[int, ...]) -> Shard:
    """Load a shard.

    Raises:
        InputError: no file, a damaged one, other taps, or counts that disagree; the message names
            the file.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise InputError(f"{path}: does not exist; run dartree_exp.training.capture")
    try:
        with safe_open(str(path), framework="pt") as handle:
            header = handle.metadata()
            tensors = {
                key: handle.get_tensor(key)
                for key in ("ids", "lengths", "prompt_lengths", "features")
            }
        names, domains = json.loads(header["names"]), json.loads(header["domains"])
        stored = tuple(json.loads(header["taps"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: not a whole feature shard ({first_line(error)}); delete it and capture again"
        ) from error
    if stored != taps:
        raise InputError(f"{path}: features of layers {stored}, wanted {taps}")
    total = int(tensors["lengths"].sum())
    if not (
        len(tensors["ids"]) == len(tensors["features"]) == total
        and len(names) == len(tensors["lengths"])
    ):
        raise InputError(f"{path}: counts disagree; delete it and capture again")
    return Shard(names, domains, **tensors)
