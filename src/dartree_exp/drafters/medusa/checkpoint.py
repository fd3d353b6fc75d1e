"""Reader and writer of Medusa checkpoints: `config.json` and `medusa_lm_head.safetensors`.

Tensors, as released: `{i}.{j}.linear.{weight,bias}` of block j of head i, and `{i}.{L}.weight`
[V, H] after its L blocks. A released `medusa_lm_head.pt` is a pickle: `convert.py` rewrites it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dartree_exp.drafters.locate import locate
from dartree_exp.drafters.medusa.config import MedusaConfig, read_config
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.drafters.medusa.session import MedusaDrafter
from dartree_exp.drafters.seeded import fill
from dartree_exp.drafters.spec import SEEDED, DrafterSettings
from dartree_exp.drafters.tensor_files import (
    check_tensors,
    read_tensors,
    weight_files,
    write_whole,
)
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.weight_files import WEIGHTS as MODEL

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

WEIGHTS, PICKLED = "medusa_lm_head.safetensors", "medusa_lm_head.pt"
TOY_HEADS = 4


def load(settings: DrafterSettings, target: Target) -> MedusaDrafter:
    """The configured heads, bound to `target`. Raises CheckpointError for a folder that is
    incomplete or was trained for another target.
    """
    assert settings.path is not None  # checked with the configuration
    if settings.path == SEEDED:
        heads = MedusaHeads(MedusaConfig(TOY_HEADS), target.hidden_size, target.vocab_size)
        fill(heads, settings.seed)
        heads.requires_grad_(False).to(target.device, target.dtype)
        return MedusaDrafter(settings.name, target, heads)
    folder = locate(settings.path)
    heads = read_heads(folder, target.hidden_size, target.vocab_size)
    heads.requires_grad_(False).to(target.device, target.dtype)
    return MedusaDrafter(settings.name, target, heads, weight_files(folder, _file(folder)))


def read_heads(folder: Path, hidden_size: int, vocab_size: int) -> MedusaHeads:
    """The heads of a folder, for a target of these sizes. Raises CheckpointError."""
    config, tensors = read_config(folder), read_tensors(folder, _file(folder))
    numbers = [name.partition(".")[0] for name in tensors]
    stored = 1 + max((int(n) for n in numbers if n.isdigit()), default=-1)
    # The released loader reads five heads whatever `medusa_num_heads` says, and released files
    # state fewer than they store. More than are stored is an error: the shapes below name them.
    config = replace(config, medusa_num_heads=max(stored, config.medusa_num_heads))
    with torch.device("meta"):
        heads = MedusaHeads(config, hidden_size, vocab_size)
    check_tensors(folder, tensors, {name: t.shape for name, t in heads.state_dict().items()})
    heads.load_state_dict(tensors, assign=True)
    return heads


def save_heads(
    folder: Path, heads: MedusaHeads, config: MedusaConfig, dtype: torch.dtype | None = None
) -> None:
    """Write a folder in the released layout; the weights file is written atomically. dtype: None
    keeps the heads'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.detach().to("cpu", dtype).clone().contiguous()
        for name, value in heads.state_dict().items()
    }
    write_whole(folder / WEIGHTS, tensors, {"format": "pt"})
    text = json.dumps(config.to_json(), indent=1, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def _file(folder: Path) -> str:
    """The name of the weights file. Raises CheckpointError for a folder with only a pickle."""
    names = [name for name in (WEIGHTS, MODEL) if (folder / name).is_file()]
    if not names and (folder / PICKLED).exists():
        raise CheckpointError(
            f"drafter {folder}: {PICKLED} is a pickle, which is never loaded here; convert it with "
            f"python -m dartree_exp.drafters.medusa.convert {folder} OUT"
        )
    return names[0] if names else WEIGHTS
