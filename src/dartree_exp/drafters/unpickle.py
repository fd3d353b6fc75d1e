"""Rewrites the tensors of a pickled checkpoint file as safetensors, without running its code.

Only the `convert` commands of drafter families import this; nothing that drafts does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from dartree_exp.drafters.tensor_files import write_whole
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.errors import UserError


def pickled_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict. Raises CheckpointError for a file with anything else in it.

    `weights_only=True` builds tensors and plain containers, and refuses every other object.
    """
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{file}: cannot be read without running its code: {reason}"
        ) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):
        raise CheckpointError(f"{file}: holds other things than named tensors")
    # Cloned: names of one tensor share memory, which safetensors refuses.
    return {name: value.detach().clone().contiguous() for name, value in found.items()}


def convert(source: Path, out: Path, pickled: str, weights: str) -> None:
    """Write `out/weights` and `out/config.json`. Raises CheckpointError.

    source: the folder with `config.json` and the pickle.
    """
    if not (source / "config.json").is_file():
        raise CheckpointError(f"{source}: has no config.json")
    if (out / weights).exists():
        raise CheckpointError(f"{out / weights}: exists already")
    tensors = pickled_tensors(source / pickled)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / weights, tensors, {"format": "pt"})
    if out.resolve() != source.resolve():
        (out / "config.json").write_bytes((source / "config.json").read_bytes())


def main(arguments: list[str], module: str, pickled: str, weights: str) -> int:
    """The `convert` command of a family: IN and OUT. Exit status: 0, or 2 for a mistake."""
    if len(arguments) != 2 or {"-h", "--help"} & set(arguments):
        print(
            f"usage: python -m {module} IN OUT\n\nIN: a folder with config.json and {pickled}. "
            f"OUT: gets config.json and {weights}."
        )
        return 0 if {"-h", "--help"} & set(arguments) else 2
    try:
        convert(Path(arguments[0]), Path(arguments[1]), pickled, weights)
    except UserError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    return 0
