"""Write a trained drafter in the released layout with its card: `python -m dartree_exp.training.export --run RUN --out FOLDER`.

One folder serves Domino (backbone and head) and DFlash (the same backbone, head ignored). The averaged (EMA) weights are
exported as bfloat16. `card.json` says what the weights were trained on and how well they do; `card.md` is the same for
people.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from dartree_exp.drafters.checkpoint import save_drafter
from dartree_exp.drafters.heads import GRUHead
from dartree_exp.models.fetch import SOURCES, sha256_of
from dartree_exp.training.card import data_card, render, stages
from dartree_exp.training.model import DraftModel, build_model
from dartree_exp.training.settings import TrainSettings
from dartree_exp.training.state import require_state


def load_run(run: Path, target: Path) -> tuple[DraftModel, torch.Tensor, dict]:
    """(model with the averaged weights, drafting ids int64 [Vd], checkpoint meta) of a run folder.

    Raises:
        FileNotFoundError: no checkpoint in the folder.
    """
    tensors, meta = require_state(run)
    settings = TrainSettings(**{**meta["settings"], "taps": tuple(meta["settings"]["taps"])})
    model = build_model(target, settings, tensors["model"]["feature_scale"])
    model.load_state_dict(tensors["model"])
    model.load_state_dict(tensors["ema"], strict=False)
    return model, tensors["vocabulary"]["ids"], meta


def full_head(head: GRUHead, ids: torch.Tensor, vocab_size: int) -> GRUHead:
    """The head over the target's whole vocabulary: W2 rows of ids outside the drafting vocabulary are zero."""
    wide = GRUHead(head.hidden_size, vocab_size, head.gru_hidden_dim, head.emb_dim, head.pure_draft_prefix_len)
    state = {key: value.detach().clone() for key, value in head.state_dict().items()}
    rows = torch.zeros(vocab_size, head.emb_dim)
    rows[ids] = state["embed_proj.2.weight"]
    state["embed_proj.2.weight"] = rows
    wide.load_state_dict(state)
    return wide


def export(run: Path, out: Path, target: Path, card: dict, headless: bool = False) -> None:
    """Write config.json, model.safetensors (bfloat16), card.json and card.md."""
    model, ids, _ = load_run(run, target)
    head = None if headless else full_head(model.head, ids, model.config.vocab_size)
    model.backbone.load_state_dict(model.folded_backbone())
    save_drafter(out, model.backbone, head, ids, dtype=torch.bfloat16)
    weights = out / "model.safetensors"
    card = {
        **card,
        "parameters": {
            "backbone": sum(p.numel() for p in model.backbone.parameters()),
            "head": 0 if head is None else sum(p.numel() for p in head.parameters()),
            "draft_vocab_size": len(ids),
        },
        "stages": stages(run),
        "weights": {"file": weights.name, "bytes": weights.stat().st_size, "sha256": sha256_of(weights)},
    }
    (out / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    (out / "card.md").write_text(render(card), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dartree_exp.training.export", description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="run folder of the last stage")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the generated text that was captured")
    parser.add_argument("--target", type=Path, help="target folder (default: the embedded target)")
    parser.add_argument("--holdout", type=int, default=8)
    parser.add_argument("--name", default="smollm2_135m")
    parser.add_argument("--validation", type=Path, help="JSON of `dartree_exp.training.tau` to put into the card")
    args = parser.parse_args(argv)
    if args.target is None:
        from dartree_exp.models.fetch import ensure

        args.target = ensure("smollm2_135m")
    source = SOURCES["smollm2_135m"]
    meta = require_state(args.run)[1]
    card = {
        "name": args.name,
        "summary": "Block-diffusion backbone (DFlash) with a GRU correction head (Domino) for SmolLM2-135M-Instruct, "
        "trained by `dartree_exp.training` on a 2-core CPU. `drafter=domino` uses both, `drafter=dflash` the backbone "
        "alone. The target is a 4-bit version of the published model, so these weights fit it, not the original.",
        "target": f"{source.gguf_name} of {source.package}=={source.version}, sha256 {source.sha256}",
        "data": data_card(args.data, args.holdout, meta["settings"]["seed"]),
        "validation": json.loads(args.validation.read_text()) if args.validation else None,
    }
    export(args.run, args.out, args.target, card)
    print(f"{args.out}: {sum(f.stat().st_size for f in args.out.iterdir()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
