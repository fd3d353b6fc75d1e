"""Checkpoints of a run: everything needed to continue it, written atomically (kill -9 at any time
loses little).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from dartree_exp.drafters.tensor_files import write_whole
from dartree_exp.records.layout import CHECKPOINT
from dartree_exp.training.errors import InputError, first_line

_GROUPS = {"model", "ema", "optimizer", "vocabulary"}
_META = {"step", "seconds", "blocks", "settings", "shards", "samples", "order", "workers"}


def save_state(folder: Path, tensors: dict[str, dict[str, Tensor]], meta: dict) -> None:
    """Write groups of tensors ("model", "ema", "optimizer", ...) and JSON values into one file,
    then rename it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flat = {
        f"{group}/{key}": t.detach().contiguous()
        for group, part in tensors.items()
        for key, t in part.items()
    }
    write_whole(folder / CHECKPOINT, flat, {"meta": json.dumps(meta)})


def load_state(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict] | None:
    """What `save_state` wrote, or None where the folder has no checkpoint. Raises InputError for a
    damaged one.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(str(path), framework="pt") as file:
            meta = json.loads(file.metadata()["meta"])
        for name, tensor in load_file(str(path)).items():
            group, key = name.split("/", 1)
            groups.setdefault(group, {})[key] = tensor
        if missing := _GROUPS - groups.keys() or _META - meta.keys():
            raise ValueError(f"without {', '.join(sorted(missing))}")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not a whole checkpoint of a training run ({first_line(error)})"
        ) from error
    return groups, meta


def require_state(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict]:
    """`load_state`; raises InputError that names the folder where it has no checkpoint or a damaged
    one.
    """
    saved = load_state(folder)
    if saved is None:
        raise InputError(f"{folder}: no checkpoint; train first")
    return saved


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts, keyed by parameter index."""
    return {
        f"{index}.{key}": value
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the moments back."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
