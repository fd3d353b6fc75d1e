"""Reader and writer of EAGLE checkpoints: `config.json` and `model.safetensors`.

Tensors. Official EAGLE-3: `fc`, `midlayer.*`, `norm`, `lm_head`, and the maps of a smaller draft
vocabulary: `d2t` [Vd], target id minus draft id, and `t2d` [V], true for a target id that is in it.
Speculators: the same with `layers.0.*`, and `embed_tokens`. EAGLE-1/2: `fc`, `layers.0.*`,
`embed_tokens`. An embedding of the checkpoint's own is used; without one, the target's.
A released `pytorch_model.bin` is a pickle: `convert.py` rewrites it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.drafters.eagle.config import EAGLE2, EAGLE3, EagleConfig, read_config
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.eagle.session import EagleDrafter
from dartree_exp.drafters.locate import locate
from dartree_exp.drafters.seeded import fill
from dartree_exp.drafters.spec import SEEDED, DrafterSettings
from dartree_exp.drafters.tensor_files import (
    OFFSETS,
    RESTRICTION,
    check_tensors,
    drafted_ids,
    read_tensors,
    weight_files,
    write_tensors,
)
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.weight_files import INDEX, WEIGHTS

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

PICKLED = "pytorch_model.bin"
EMBED = "embed_tokens.weight"


def load(settings: DrafterSettings, target: Target, third: bool) -> EagleDrafter:
    """The configured drafter. Raises CheckpointError for a folder that is incomplete, has another
    layout or was trained for another target.
    """
    assert settings.path is not None and settings.num_drafts is not None  # checked before
    if settings.path == SEEDED:
        return _seeded(settings, target, third)
    folder = locate(settings.path)
    config = read_config(folder, third)
    try:
        taps = len(config.taps(target.num_layers))
        model, embed, ids = read_model(folder, config, taps)
        model.requires_grad_(False).to(target.device, target.dtype)
        embed = None if embed is None else embed.to(target.device, target.dtype)
        files = weight_files(folder)
        return EagleDrafter(settings.name, target, model, settings.num_drafts, embed, ids, files)
    except CheckpointError as error:
        if str(folder) in str(error):
            raise
        raise CheckpointError(f"drafter {folder}: {error}") from error


load_eagle3, load_eagle2 = partial(load, third=True), partial(load, third=False)


def read_model(
    folder: Path, config: EagleConfig, taps: int = 3
) -> tuple[EagleModel, Tensor | None, Tensor | None]:
    """The model, its embedding [V, H] and the target ids [Vd] of its vocabulary; None: the
    target's. taps: layers of the target that `fc` joins. Raises CheckpointError.
    """
    safe = (folder / WEIGHTS).exists() or (folder / INDEX).exists()
    if not safe and (folder / PICKLED).exists():
        raise CheckpointError(
            f"drafter {folder}: {PICKLED} is a pickle, which is never loaded here; convert it with "
            f"python -m dartree_exp.drafters.eagle.convert {folder} OUT"
        )
    stored = read_tensors(folder, marks=(OFFSETS, RESTRICTION))
    tensors = {
        "midlayer" + name.removeprefix("layers.0") if name.startswith("layers.0.") else name: value
        for name, value in stored.items()
    }
    with torch.device("meta"):
        model = EagleModel(config, taps)
    expected = {name: value.shape for name, value in model.state_dict().items()}
    if EMBED in tensors:
        expected[EMBED] = torch.Size([config.vocab_size, config.hidden_size])
    if config.restricted:
        expected[OFFSETS] = torch.Size([config.draft_vocab_size or 0])
        expected[RESTRICTION] = torch.Size([config.vocab_size])
    else:  # maps of a whole vocabulary say nothing
        tensors.pop(OFFSETS, None)
        tensors.pop(RESTRICTION, None)
    check_tensors(folder, tensors, expected)
    embed = tensors.pop(EMBED, None)
    ids = None
    if config.restricted:
        try:
            ids = drafted_ids(tensors.pop(OFFSETS), tensors.pop(RESTRICTION))
        except CheckpointError as error:
            raise CheckpointError(f"drafter {folder}: {error}") from error
    model.load_state_dict(tensors, assign=True)
    return model, embed, ids


def save_eagle(
    folder: Path,
    model: EagleModel,
    vocab_ids: Tensor | None = None,
    embed: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a folder in the official layout. vocab_ids: int64 [Vd], target ids of the draft
    vocabulary. Raises CheckpointError.
    """
    config = model.config
    config = replace(config, layout=EAGLE3 if config.third else EAGLE2)
    prefix = "midlayer." if config.third else "layers.0."
    tensors = {
        name.replace("midlayer.", prefix): value.detach().to("cpu", dtype).clone().contiguous()
        for name, value in model.state_dict().items()
    }
    if embed is not None:
        tensors[EMBED] = embed.detach().to("cpu", dtype).clone().contiguous()
    if vocab_ids is not None:
        ids = vocab_ids.cpu()
        tensors[OFFSETS] = ids - torch.arange(len(ids))
        tensors[RESTRICTION] = torch.zeros(config.vocab_size, dtype=torch.bool)
        tensors[RESTRICTION][ids] = True
    write_tensors(folder, tensors)
    text = json.dumps(config.to_json(), indent=1, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def _seeded(settings: DrafterSettings, target: Target, third: bool) -> EagleDrafter:
    """Random weights, for tiny targets; EAGLE-3 has three quarters of the ids."""
    vocabulary = target.vocab_size * 3 // 4
    config = EagleConfig(
        layout=EAGLE3 if third else EAGLE2,
        hidden_size=target.hidden_size,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=target.vocab_size,
        rope_theta=10_000.0,
        rms_norm_eps=1e-6,
        max_position_embeddings=target.max_positions,
        draft_vocab_size=vocabulary if third else None,
        aux_ids=(0, 1),
        fc_bias=not third,
    )
    model = EagleModel(config, num_taps=2)
    fill(model, settings.seed)
    model.requires_grad_(False).to(target.device, target.dtype)
    ids = torch.arange(vocabulary) + target.vocab_size - vocabulary if third else None
    assert settings.num_drafts is not None
    return EagleDrafter(settings.name, target, model, settings.num_drafts, vocab_ids=ids)
