"""Reader and writer of the DFlash / Domino checkpoint layout: `config.json` and safetensors, nothing else.

One addition of ours, absent from released files: a bool tensor `t2d` [V] with `draft_vocab_size` in `config.json`
marks the target ids that the drafting softmax is restricted to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartree_exp.drafters.backbone import DFlashBackbone
from dartree_exp.drafters.dflash import DFlashDrafter
from dartree_exp.drafters.dflash_config import CheckpointError, DFlashConfig, read_config
from dartree_exp.drafters.heads import GRUHead

if TYPE_CHECKING:
    from dartree_exp.models.target import Target

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
LEGACY_PREFIX = "logit_head."
RESTRICTION = "t2d"


@dataclass(frozen=True)
class Checkpoint:
    """A drafter as stored. vocab_ids: int64 [Vd], ascending, or None where drafting is not restricted."""

    config: DFlashConfig
    backbone: DFlashBackbone
    head: GRUHead | None
    vocab_ids: Tensor | None
    weight_files: tuple[Path, ...]


def load_drafter(
    folder: str | Path,
    target: Target,
    *,
    use_head: bool = True,
    dtype: torch.dtype | None = None,
    name: str | None = None,
) -> DFlashDrafter:
    """A drafter ready for `target`, on its device. dtype: of backbone and head, None = the target's.

    use_head: False leaves a Domino head out, which gives plain DFlash with the same number of drafts.
    Raises CheckpointError for a checkpoint that is incomplete, unknown in layout or made for another target.
    """
    stored = read_checkpoint(folder, use_head=use_head, dtype=dtype or target.dtype, device=target.device)
    for module in (stored.backbone, stored.head):
        if module is not None:
            module.requires_grad_(False)
    try:
        return DFlashDrafter(
            name or Path(folder).name, target, stored.backbone, stored.head, stored.vocab_ids, stored.weight_files
        )
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def read_checkpoint(
    folder: str | Path,
    *,
    use_head: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Checkpoint:
    """Read a checkpoint folder without a target. dtype: None keeps the stored one. Raises CheckpointError."""
    folder = Path(folder)
    config = read_config(folder)
    files = _weight_files(folder)
    with torch.device("meta"):
        backbone = DFlashBackbone(config)
        head = make_head(config)
    tensors = _read_tensors(folder, files)
    _check_tensors(folder, tensors, _expected(config, backbone, head))
    restriction = tensors.pop(RESTRICTION, None)
    vocab_ids = None if restriction is None else restriction.nonzero().flatten()
    if vocab_ids is not None and vocab_ids.numel() != config.draft_vocab_size:
        raise CheckpointError(
            f"drafter {folder}: {RESTRICTION} marks {vocab_ids.numel()} ids, draft_vocab_size = "
            f"{config.draft_vocab_size}"
        )
    tensors = {key: value.to(device=device, dtype=dtype) for key, value in tensors.items()}
    for module in (backbone, head):
        if module is not None:
            module.load_state_dict({key: tensors[key] for key in module.state_dict()}, assign=True)
    return Checkpoint(config, backbone, head if use_head else None, vocab_ids, tuple(files))


def save_drafter(
    folder: str | Path,
    backbone: DFlashBackbone,
    head: GRUHead | None = None,
    vocab_ids: Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a checkpoint folder; the weights file is put in place whole or not at all. dtype: None keeps the modules'.

    vocab_ids: int64 [Vd], the target ids the drafting softmax is restricted to. The head's sizes and the restriction
    are written into `config.json` whatever `backbone.config` says about them.
    """
    folder = Path(folder)
    config = replace(
        backbone.config,
        projector_type=None if head is None else "domino",
        emb_dim=None if head is None else head.emb_dim,
        gru_hidden_dim=None if head is None else head.gru_hidden_dim,
        pure_draft_prefix_len=0 if head is None else head.pure_draft_prefix_len,
        draft_vocab_size=None if vocab_ids is None else vocab_ids.unique().numel(),
    )
    state = backbone.state_dict() | ({} if head is None else head.state_dict())
    tensors = {key: value.detach().to("cpu", dtype).contiguous() for key, value in state.items()}
    if vocab_ids is not None:
        tensors[RESTRICTION] = torch.zeros(config.vocab_size, dtype=torch.bool)
        tensors[RESTRICTION][vocab_ids.cpu()] = True
    _check_tensors(folder, tensors, _expected(config, backbone, head))
    text = config.to_json() | {"dtype": str(tensors["fc.weight"].dtype).removeprefix("torch.")}
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{WEIGHTS}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS)
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def make_head(config: DFlashConfig) -> GRUHead | None:
    """The correction head a config asks for, freshly initialised."""
    if config.projector_type is None:
        return None
    assert config.gru_hidden_dim is not None and config.emb_dim is not None  # DFlashConfig checked it.
    return GRUHead(
        config.hidden_size, config.vocab_size, config.gru_hidden_dim, config.emb_dim, config.pure_draft_prefix_len
    )


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        shards = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / Path(shard).name for shard in sorted(set(shards))]
    raise CheckpointError(f"drafter {folder}: neither {WEIGHTS} nor {INDEX}; pickled weights are never read")


def _read_tensors(folder: Path, files: list[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in files:
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


def _expected(config: DFlashConfig, *modules: torch.nn.Module | None) -> dict[str, torch.Size]:
    shapes = {
        key: value.shape for module in modules if module is not None for key, value in module.state_dict().items()
    }
    if config.draft_vocab_size is not None:
        shapes[RESTRICTION] = torch.Size([config.vocab_size])
    return shapes


def _check_tensors(folder: Path, tensors: dict[str, Tensor], expected: dict[str, torch.Size]) -> None:
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
