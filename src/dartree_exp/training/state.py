"""Checkpoints of a run: everything needed to continue it, written atomically (kill -9 at any time loses little)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

CHECKPOINT = "checkpoint.safetensors"


def save_state(folder: Path, tensors: dict[str, dict[str, Tensor]], meta: dict) -> None:
    """Write groups of tensors ("model", "ema", "optimizer", ...) and JSON values into one file, then rename it."""
    folder.mkdir(parents=True, exist_ok=True)
    flat = {f"{group}/{key}": t.detach().contiguous() for group, part in tensors.items() for key, t in part.items()}
    part = folder / f".{CHECKPOINT}.{os.getpid()}"
    save_file(flat, str(part), metadata={"meta": json.dumps(meta)})
    os.replace(part, folder / CHECKPOINT)


def load_state(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict] | None:
    """What `save_state` wrote, or None where the folder has no checkpoint."""
    from safetensors import safe_open

    path = folder / CHECKPOINT
    if not path.exists():
        return None
    with safe_open(str(path), framework="pt") as file:
        meta = json.loads(file.metadata()["meta"])
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(str(path)).items():
        group, key = name.split("/", 1)
        groups.setdefault(group, {})[key] = tensor
    return groups, meta


def require_state(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict]:
    """`load_state`, or FileNotFoundError that names the folder."""
    saved = load_state(folder)
    if saved is None:
        raise FileNotFoundError(f"{folder}: no checkpoint; train first")
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
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def append_line(path: Path, row: dict) -> None:
    """One JSON object, flushed."""
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")
