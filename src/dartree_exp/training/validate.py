"""Held-out loss and accuracy per slot of an exported drafter: `python -m
dartree_exp.training.validate --drafter FOLDER`.

Teacher-forced, at evenly spaced anchors of held-out text (shard 0 of the features). A training run
watches itself with the same function. The acceptance that counts is measured by the decoding path,
see `dartree_exp.training.tau`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dartree_exp.drafters.heads.head import Head
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.engines.target import Target
from dartree_exp.training.batches import Captured, Vocabulary, load_captured, make_batch
from dartree_exp.training.command import Parser, output_file, positive, run
from dartree_exp.training.drafted import Backbone, own_head, slot_hidden
from dartree_exp.training.provenance import features_record
from dartree_exp.training.target import open_target

ANCHORS = 16  # per sample
HOW = (
    "Teacher-forced, {anchors} evenly spaced anchors of each of {samples} held-out samples. Every "
    "label counts: one outside "
    "the drafting vocabulary is a miss. `coverage` is the share of labels inside it; the loss is a "
    "mean over those."
)


def even_anchors(sample: Captured, count: int) -> torch.Tensor:
    """int64 [<= count]: distinct positions spread over the output."""
    last = len(sample.ids) - 2
    return torch.linspace(sample.prompt, last, min(count, last - sample.prompt + 1)).round().long()


@torch.no_grad()
def validate(
    backbone: Backbone,
    head: Head | None,
    feature_scale: Tensor,
    samples: list[Captured],
    vocabulary: Vocabulary,
    block: int,
    anchors: int,
) -> dict[str, Any]:
    """`loss`, `accuracy` and `coverage` per slot, `chain` = mean tokens a linear draft would
    advance there, `blocks`.

    head: bound, over the drafting vocabulary; teacher-forced. None: the backbone alone. Labels
    outside the drafting vocabulary count as misses, in `accuracy` and in `chain`; the loss, which
    is infinite there, is over the others, whose share is `coverage`. All slots weigh the same.
    """
    hits, losses, known_counts, counts = (torch.zeros(block, dtype=torch.float64) for _ in range(4))
    advanced, blocks = 0.0, 0
    own = own_head(backbone)
    table = vocabulary.head if own is None else own
    for begin in range(0, len(samples), 8):
        part = samples[begin : begin + 8]
        batch = make_batch(
            part, [even_anchors(s, anchors) for s in part], block, feature_scale, vocabulary
        )
        hidden = slot_hidden(backbone, batch, vocabulary.embed).flatten(0, 1)
        labels, inside = batch.labels.flatten(0, 1), batch.inside.flatten(0, 1)
        used = inside[:, 0]
        right = torch.zeros_like(inside)
        for row in used.nonzero().squeeze(1).split(32):
            logits = F.linear(hidden[row], table)
            if head is not None:
                previous = batch.previous.flatten(0, 1)[row]
                logits = head.taught(logits, hidden[row], previous, labels[row])
            right[row] = logits.argmax(-1) == labels[row]
            known = labels[row] >= 0
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels[row].clamp_min(0).flatten(), reduction="none"
            )
            losses += (loss.view_as(known) * known).sum(0)
            known_counts += known.sum(0)
        hits += right.sum(0)
        counts += inside[used].sum(0)
        advanced += float(right.long().cumprod(1).sum() + used.sum())
        blocks += int(used.sum())
    return {
        "loss": _rounded(losses / known_counts.clamp_min(1)),
        "accuracy": _rounded(hits / counts.clamp_min(1)),
        "coverage": _rounded(known_counts / counts.clamp_min(1)),
        "chain": round(advanced / max(blocks, 1), 4),
        "blocks": blocks,
    }


def validate_exported(
    drafter: Path, features: Path, target: Target, anchors: int
) -> dict[str, Any]:
    """What the command writes: `rows` for the backbone alone and with the head, and which weights
    they are of.

    Raises CheckpointError, or InputError for features of other layers.
    """
    from dartree_exp.training.exported import load_exported, weights_of

    exported = load_exported(drafter, target)
    taps = exported.taps or tuple(features_record(features)["taps"])
    finals = isinstance(exported.backbone, MedusaHeads)
    samples = load_captured(features, 0, taps, finals)
    scale = torch.ones(samples[0].features.shape[1])
    heads = {"backbone alone": None} | (
        {} if exported.head is None else {"with the head": exported.head}
    )
    rows = [
        {"logits": name}
        | validate(
            exported.backbone, head, scale, samples, exported.vocabulary, exported.block, anchors
        )
        for name, head in heads.items()
    ]
    return {
        "how": HOW.format(anchors=anchors, samples=len(samples)),
        "samples": [s.name for s in samples],
        "weights": weights_of(drafter),
        "rows": rows,
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(x, 4) for x in values.tolist()]


def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        "validate", __doc__, "--drafter drafter --features features --out accuracy.json"
    )
    parser.shared("drafter", "target", "threads")
    parser.add_argument(
        "--features",
        type=Path,
        required=True,
        help="captured features (`capture --limit 1` is enough)",
    )
    parser.add_argument(
        "--anchors", type=positive, default=ANCHORS, help="blocks per held-out sample"
    )
    parser.add_argument("--out", type=output_file, help="write JSON here, for the card")
    args = parser.parse_args(argv)
    target = open_target(args.target, args.threads)
    result = validate_exported(args.drafter, args.features, target, args.anchors)
    print(result["how"])
    for row in result["rows"]:
        print(
            f"{row['logits']}: {row['chain']} tokens per round of a linear draft; accuracy per "
            "slot:",
            *row["accuracy"],
        )
    if args.out:
        from dartree_exp.records.files import write_json

        write_json(args.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
