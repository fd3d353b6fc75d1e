"""One training step's loss and gradients, as a module, so that DistributedDataParallel sees the
forward that its gradients belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dartree_exp.config.training import TrainingConfig
from dartree_exp.drafters.heads.head import AdditiveHead
from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.training.batches import Batch, Vocabulary
from dartree_exp.training.drafted import own_head, slot_hidden
from dartree_exp.training.losses import (
    Mix,
    confidence_loss,
    draft_loss,
    draw_slots,
    inclusion_probabilities,
    length_labels,
    position_weights,
)
from dartree_exp.training.mixture import MixtureMix, mixture_loss
from dartree_exp.training.model import DraftModel
from dartree_exp.training.settings import base_share, corrects, first_slot


@dataclass(frozen=True)
class Drawn:
    """The slots whose loss is computed. slots: int64 [N, R] of N blocks; share: [N * R], weights
    that make the sum over drawn slots an unbiased estimate of the sum over all; live: indices into
    [N * R] of those with a label; inside: bool [N * R], there is a token to predict.
    """

    slots: Tensor
    share: Tensor
    live: Tensor
    inside: Tensor

    @property
    def totals(self) -> list[float]:
        """Sums of the weights of the drafting loss and of the confidence loss, and the number of
        blocks whose first drawn slot has a label.
        """
        first = self.live % self.slots.shape[1] == 0
        shares = [float(self.share[rows].sum()) for rows in (self.live, self.inside)]
        return [*shares, float(first.sum())]


def draw(batch: Batch, s: TrainingConfig, generators: Sequence[torch.Generator]) -> Drawn:
    """Slots for each sample of the batch, drawn from its own generator."""
    weights = position_weights(batch.labels.shape[2], s.gamma, first_slot(s))
    chance = inclusion_probabilities(weights, min(s.loss_slots, int((weights > 0).sum())))
    anchors = batch.labels.shape[1]
    slots = torch.cat([draw_slots(chance, s.anchors, rng)[:anchors] for rng in generators])
    labels = batch.labels.flatten(0, 1).gather(1, slots).flatten()
    return Drawn(
        slots,
        (weights / chance.clamp_min(1e-12))[slots].flatten(),
        (labels >= 0).nonzero().squeeze(1),
        batch.inside.flatten(0, 1).gather(1, slots).flatten(),
    )


@dataclass(frozen=True)
class StepLoss:
    """Losses of one step, and what their gradients come from. confidence, length: 0 without such a
    head. accepted: expected accepted length of a block, 0 without a mixture.

    tensors: what the gradients of the chunked loss belong to; autograd continues from them. None: a
    scalar.
    """

    base: float
    final: float
    confidence: float
    length: float
    tensors: list[Tensor]
    gradients: list[Tensor | None]
    accepted: float = 0.0

    def backward(self) -> None:
        if self.tensors:
            torch.autograd.backward(self.tensors, self.gradients)


class Step(nn.Module):
    """The head must be bound to the target's embedding table."""

    def __init__(self, model: DraftModel, settings: TrainingConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.model, self.settings, self.vocabulary = model, settings, vocabulary

    def forward(
        self,
        batch: Batch,
        drawn: Drawn,
        totals: Sequence[float],
        progress: float,
        length_only: bool = False,
    ) -> StepLoss:
        """Losses as means over `totals`, the weights of all processes. length_only: the gradients
        are those of the length head.
        """
        model, s = self.model, self.settings
        backbone_trained = s.stage != "head" and not length_only
        slots, live = drawn.slots, drawn.live
        shape, table = batch.labels.shape[:2], own_head(model.backbone)
        labels = batch.labels.flatten(0, 1).gather(1, slots).flatten()
        codes = output = head = None
        if corrects(s.stage) and isinstance(model.head, LatentHead):
            return self._mixture(model.head, batch, drawn, totals, base_share(s, progress))
        if corrects(s.stage):
            assert isinstance(model.head, AdditiveHead)
            head = model.head
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bf16()):
            whole = head is not None and head.reads_block
            with torch.set_grad_enabled(backbone_trained):
                picked = None if whole else slots.view(*shape, -1)
                blocks = slot_hidden(model.backbone, batch, self.vocabulary.embed, picked)
                blocks = blocks.flatten(0, 1).float()
                there = slots[..., None].expand(-1, -1, blocks.shape[-1])
                hidden = (blocks.gather(1, there) if whole else blocks).flatten(0, 1)
            previous = batch.previous.flatten(0, 1)
            if head is not None:
                codes = head.codes(blocks, previous, slots).flatten(0, 1)[live].float()
                output = head.output
            rows = hidden[live]
            result = draft_loss(
                rows.detach(),
                self.vocabulary.head if table is None else table.detach(),
                labels[live],
                drawn.share[live],
                totals[0],
                codes=None if codes is None else codes.detach(),
                output=None if output is None else output.detach(),
                teacher=None if batch.finals is None else batch.finals.behind(slots)[live],
                teacher_head=self.vocabulary.head,
                mix=Mix(s.ce, s.l1, s.kl, s.rkl, s.rkl_clip, s.rkl_temperature),
                base_share=base_share(s, progress),
                hidden_gradient=backbone_trained,
                output_gradient=output is not None and output.requires_grad,
                head_gradient=table is not None and table.requires_grad,
                hits=model.length is not None,
            )
            misjudged = None
            if model.length is not None and result.right is not None:
                right = torch.zeros(slots.numel(), dtype=torch.bool)
                right = right.index_copy(0, live, result.right).view_as(slots)
                wanted, known = length_labels(right, drawn.inside.view_as(slots))
                share = model.length(hidden.detach().view(*slots.shape, -1)[known])
                error = F.mse_loss if s.length_loss == "mse" else F.l1_loss
                misjudged = error(share.float(), wanted[known]) if known.any() else None
            doubt = None
            if head is not None and model.confidence is not None:
                inside = drawn.inside
                accepted = torch.zeros_like(drawn.share).index_copy(0, live, result.acceptance)
                before = previous.gather(1, slots).flatten()[inside]
                reach = s.confidence_gradient == "all"
                logits = model.confidence(hidden[inside], before, reach).float()
                doubt = confidence_loss(logits, accepted[inside], drawn.share[inside], totals[1])
        found = [
            (tensor, gradient)
            for tensor, gradient in (
                (rows, result.hidden),
                (codes, result.codes),
                (output, result.output),
                (table, result.head),
                (doubt, None),
                (misjudged, None),
            )
            if tensor is not None and tensor.requires_grad
        ]
        return StepLoss(
            result.base,
            result.final,
            0.0 if doubt is None else float(doubt.detach()),
            0.0 if misjudged is None else float(misjudged.detach()),
            [tensor for tensor, _ in found],
            [gradient for _, gradient in found],
        )

    def _mixture(
        self, head: LatentHead, batch: Batch, drawn: Drawn, totals: Sequence[float], share: float
    ) -> StepLoss:
        """Of a latent mixture, whose slots depend on each other: all of them are drawn."""
        s, shape = self.settings, drawn.slots.shape
        trained = s.stage != "head"
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bf16()):
            with torch.set_grad_enabled(trained):
                blocks = slot_hidden(self.model.backbone, batch, self.vocabulary.embed)
                hidden = blocks.flatten(0, 1).float()
            codes, output = head.codes(hidden).float(), head.readout().float()
            prior = head.log_prior(hidden, batch.previous.flatten(0, 1)[:, 0])
            result = mixture_loss(
                hidden.detach(),
                self.vocabulary.head,
                batch.labels.flatten(0, 1),
                drawn.share.view(shape),
                (totals[0], totals[2]),
                codes.detach(),
                output.detach(),
                prior.detach(),
                mix=MixtureMix(s.ce, s.accept, s.accept_form == "log", s.accept_threshold),
                base_share=share,
                hidden_gradient=trained,
            )
        tensors = [codes, output, prior, *([hidden] if trained else [])]
        gradients = [result.codes, result.output, result.prior, result.hidden]
        return StepLoss(
            result.base,
            result.final,
            0.0,
            0.0,
            tensors,
            gradients[: len(tensors)],
            result.accepted,
        )
