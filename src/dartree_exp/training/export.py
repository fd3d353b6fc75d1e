"""Write a trained drafter with its card: `python -m dartree_exp.training.export --run RUN --out
FOLDER`.

EAGLE-3 and Medusa are written in their official layouts.

A folder in the released layout serves Domino or DSpark (backbone and head) and DFlash (the same
backbone, head ignored). With `--backbone FOLDER`, an exported folder beside `--out`, only the head
is written, and that folder named as its backbone: so several heads share one. The averaged (EMA)
weights are exported as bfloat16. The card says what the run recorded about them, see
`dartree_exp.training.card`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint, save_drafter, save_head
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.eagle.checkpoint import save_eagle
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.heads.head import Head
from dartree_exp.drafters.medusa.checkpoint import save_heads
from dartree_exp.engines.target import Target
from dartree_exp.errors import UserError
from dartree_exp.records.reading import read_object
from dartree_exp.training.card import data_card, stages, weights_card, write_card
from dartree_exp.training.command import Parser, output, run
from dartree_exp.training.errors import InputError
from dartree_exp.training.exported import full_head
from dartree_exp.training.model import DraftModel, build_model
from dartree_exp.training.provenance import target_record
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import require_state
from dartree_exp.training.target import open_target


def load_run(run: Path, target: Target) -> tuple[DraftModel, Tensor, dict]:
    """(model with the averaged weights, drafting ids int64 [Vd], checkpoint meta) of a run folder.

    Raises:
        InputError: no checkpoint in the folder.
    """
    tensors, meta = require_state(run)
    settings, taps = from_json(meta["settings"])
    model = build_model(target, settings, taps, tensors["model"]["feature_scale"])
    model.load_state_dict(tensors["model"])
    model.load_state_dict(tensors["ema"], strict=False)
    return model, tensors["vocabulary"]["ids"], meta


def export(run: Path, out: Path, target: Target, card: dict, backbone: Path | None = None) -> None:
    """Write config.json, model.safetensors (bfloat16), card.json and card.md.

    backbone: see the module's text. Raises InputError where the run's head was not trained on that
    one.
    """
    model, ids, _ = load_run(run, target)
    model.backbone.load_state_dict(model.folded_backbone())
    head = _write(model, ids, out, target, backbone)
    card = {
        **card,
        "parameters": {
            "backbone": _size(model.backbone),
            "head": 0 if head is None else _size(head),
            "length": 0 if model.length is None else _size(model.length),
            "draft_vocab_size": len(ids),
        },
        "stages": stages(run),
        "weights": weights_card(out),
    }
    if backbone is not None:
        card["backbone"] = read_object(out / "config.json")["backbone"]
    write_card(out, card)


def _write(
    model: DraftModel, ids: Tensor, out: Path, target: Target, shared: Path | None
) -> Head | None:
    """Write the weights in their family's layout; the correction head as it was written."""
    trained, half = model.backbone, torch.bfloat16
    if not isinstance(trained, DFlashBackbone):
        if shared is not None:
            raise InputError(f"--backbone {shared}: only a DFlash backbone has correction heads")
        if isinstance(trained, EagleModel):
            save_eagle(out, trained, ids, dtype=half)
        else:
            config = replace(trained.config, base_model_name_or_path=target.name)
            save_heads(out, trained, config, dtype=half)
        return None
    head = None if model.head is None else full_head(model.head, ids, target.vocab_size)
    if shared is None:
        save_drafter(
            *(out, trained, head, ids),
            confidence=model.confidence,
            length=model.length,
            dtype=half,
        )
    elif head is None:
        raise InputError(f"--backbone {shared}: the run trained a backbone, not a head on one")
    else:
        _same_backbone(trained, ids, shared)
        save_head(out, shared, head, model.confidence, dtype=half)
    return head


def _same_backbone(mine: nn.Module, ids: Tensor, folder: Path) -> None:
    stored = read_checkpoint(folder)
    if stored.vocab_ids is None or not torch.equal(stored.vocab_ids, ids):
        raise InputError(f"{folder}: drafts over other ids than this run")
    theirs = stored.backbone.state_dict()
    for name, value in mine.state_dict().items():
        if not torch.equal(value.to(theirs[name].dtype), theirs[name]):
            raise InputError(
                f"{folder}: is not the backbone this run's head was trained on ({name} differs)"
            )


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        "export", __doc__, "--run multirun/training/head --data text.jsonl --out drafter"
    )
    parser.add_argument("--run", type=Path, required=True, help="run folder of the last stage")
    parser.add_argument("--out", type=output, required=True, help="folder to write")
    parser.shared("data", "target", "holdout")
    parser.add_argument(
        "--backbone", type=Path, help="exported folder beside --out: write the head alone"
    )
    parser.add_argument("--name", help="title of the card; without it what the weights are")
    args = parser.parse_args(argv)
    meta = require_state(args.run)[1]
    target = open_target(args.target)
    card = {
        "target": _checked_target(target, meta.get("data")),
        "data": data_card(args.data, args.holdout, meta["settings"]["seed"], meta.get("data")),
    }
    if args.name:
        card["name"] = args.name
    export(args.run, args.out, target, card, backbone=args.backbone)
    print(f"{args.out}: {sum(f.stat().st_size for f in args.out.iterdir()) / 1e6:.1f} MB")
    return 0


def _checked_target(target: Target, recorded: dict[str, Any] | None) -> dict[str, Any] | str:
    """The run's record of its target, which `target` must be; a description in words for a run
    without one.
    """
    found = target_record(target)
    if recorded is None:
        return (
            f"{found.get('source') or found['name']}, sha256 of the weights "
            f"{found['weights_sha256']}"
        )
    if found["weights_sha256"] != recorded["target"]["weights_sha256"]:
        raise UserError(
            f"--target {target.name}: not the target of this run, {recorded['target']['name']}"
        )
    return dict(recorded["target"])


if __name__ == "__main__":
    sys.exit(run(main))
