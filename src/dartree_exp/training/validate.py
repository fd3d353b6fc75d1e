"""Held-out loss and accuracy per slot, at evenly spaced anchors of held-out text.

This watches a run. The acceptance that counts is measured by the decoding path, see `dartree_exp.training.tau`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from dartree_exp.training.batches import Captured, Vocabulary, make_batch
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.model import DraftModel


def even_anchors(sample: Captured, count: int) -> torch.Tensor:
    """int64 [<= count]: distinct positions spread over the output."""
    last = len(sample.ids) - 2
    return torch.linspace(sample.prompt, last, min(count, last - sample.prompt + 1)).round().long()


@torch.no_grad()
def validate(
    model: DraftModel, samples: list[Captured], vocabulary: Vocabulary, block: int, anchors: int, corrected: bool
) -> dict:
    """Weighted by nothing: `loss` and `accuracy` per slot, `chain` = mean tokens a linear draft would advance there.

    corrected: with the head, teacher-forced; it must be bound. Labels outside the drafting vocabulary count as misses.
    """
    hits, losses, counts = (torch.zeros(block, dtype=torch.float64) for _ in range(3))
    advanced, blocks = 0.0, 0
    for begin in range(0, len(samples), 8):
        part = samples[begin : begin + 8]
        batch = make_batch(part, [even_anchors(s, anchors) for s in part], block, model.feature_scale, vocabulary)
        hidden = block_hidden(model.backbone, batch.inputs, block).flatten(0, 1)
        labels, inside = batch.labels.flatten(0, 1), batch.inside.flatten(0, 1)
        used = inside[:, 0]
        right = torch.zeros_like(inside)
        for row in used.nonzero().squeeze(1).split(32):
            logits = F.linear(hidden[row], vocabulary.head)
            if corrected:
                logits = logits + model.head(hidden[row], batch.previous.flatten(0, 1)[row])
            right[row] = (logits.argmax(-1) == labels[row]) & inside[row]
            known = labels[row] >= 0
            loss = F.cross_entropy(logits.flatten(0, 1), labels[row].clamp_min(0).flatten(), reduction="none")
            losses += (loss.view_as(known) * known).sum(0)
            counts += known.sum(0)
        hits += right.sum(0)
        advanced += float(right.long().cumprod(1).sum() + used.sum())
        blocks += int(used.sum())
    inside_counts = counts.clamp_min(1)
    return {
        "loss": [round(x, 4) for x in (losses / inside_counts).tolist()],
        "accuracy": [round(x, 4) for x in (hits / inside_counts).tolist()],
        "chain": round(advanced / max(blocks, 1), 4),
        "blocks": blocks,
    }
