"""A drafter folder in a layout that serving engines load: `python -m dartree_exp.training.convert
--drafter FOLDER --layout LAYOUT --out FOLDER`.

`zlab`: z-lab's DFlash and Domino, also SGLang's DFLASH. `dspark`: DeepSpec's DSpark, with the
target's embedding and vocabulary head. `speculators`: what `vllm serve` reads. A folder with only a
head is written with its backbone. The result is read again, and its block logits are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.checkpoint import (
    load_drafter,
    read_checkpoint,
    save_drafter,
    save_speculators,
)
from dartree_exp.drafters.heads.spec import HEADS
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import CorrectionHead
from dartree_exp.training.command import Parser, output, run
from dartree_exp.training.errors import InputError
from dartree_exp.training.target import open_target

LAYOUTS = ("zlab", "dspark", "speculators")


def convert(drafter: Path, layout: str, out: Path, target: Target) -> None:
    """Write `out`. Raises CheckpointError for a head that the layout does not have, InputError if
    `out` exists or reads otherwise than `drafter`.
    """
    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out}: is not empty")
    stored = read_checkpoint(drafter)
    tables = target.embed_weight.cpu(), target.lm_head_weight.cpu()
    kind = stored.config.head
    if kind is not None and HEADS[kind.kind].mixture:
        raise InputError(
            f"--drafter {drafter}: no serving engine reads a {kind.kind} head; convert its backbone"
        )
    if layout == "speculators":
        save_speculators(out, stored, target.name, target.architecture, tables)
    else:
        if layout == "zlab" and kind is not None and kind.deepspec:
            raise InputError(f"--layout zlab: has no {kind.kind} head; use dspark or speculators")
        save_drafter(
            out,
            stored.backbone,
            stored.head,
            stored.vocab_ids,
            confidence=stored.confidence,
            length=stored.length,
            tables=tables if layout == "dspark" else None,
        )
    if not torch.equal(block_logits(drafter, target), block_logits(out, target)):
        raise InputError(f"{out}: drafts other logits than {drafter}")


def block_logits(folder: Path, target: Target) -> Tensor:
    """float32 [2, D, Vd] of one block after random features: base, and corrected after one path.

    In float64, whose tensors are new: the last bits of a product with weights as they lie in a file
    depend on their place in it.
    """
    drafter = load_drafter(folder, target, dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    width = drafter.backbone.fc.weight.shape[1]
    features = torch.randn(9, width, generator=draws).to(target.dtype)
    block = drafter.session([]).propose(features, 5, 9)
    if drafter.head is None:
        return torch.stack([block.logits, block.logits])
    head = cast(CorrectionHead, drafter.head)
    ids = torch.arange(target.vocab_size) if block.vocab_ids is None else block.vocab_ids
    prepared = head.prepare(block, ids.expand(len(block.logits), -1))
    state, rows = head.start(5), []
    for depth in range(1, len(block.logits) + 1):
        rows.append(head.correction(prepared, state, depth)[0].float())
        token = ids[[depth % len(ids)]]
        state = head.advance(prepared, state, depth, torch.tensor([0]), token)
    return torch.stack([block.logits, block.logits + torch.stack(rows)])


def main(argv: list[str] | None = None) -> int:
    parser = Parser("convert", __doc__, "--drafter drafter --layout speculators --out served")
    parser.shared("drafter", "target")
    parser.add_argument("--layout", choices=LAYOUTS, required=True, help="of the written folder")
    parser.add_argument("--out", type=output, required=True, help="folder to write")
    args = parser.parse_args(argv)
    convert(args.drafter, args.layout, args.out, open_target(args.target))
    size = sum(file.stat().st_size for file in args.out.iterdir())
    print(f"{args.out}: {args.layout}, {size / 1e6:.1f} MB, the same block logits")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
