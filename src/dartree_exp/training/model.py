"""The trained modules and one training step's loss and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.confidence import ConfidenceHead, bind_confidence, make_confidence
from dartree_exp.drafters.heads.head import Head, make_head
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.training.batches import Batch, Vocabulary
from dartree_exp.training.errors import InputError
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.losses import (
    LossResult,
    confidence_loss,
    draft_loss,
    draw_slots,
    inclusion_probabilities,
    position_weights,
)
from dartree_exp.training.settings import TrainSettings
from dartree_exp.training.target import WEIGHTS, check_taps, read_target_config, reading_weights


class DraftModel(nn.Module):
    """Backbone, correction head over the drafting vocabulary, and the feature scale the backbone is
    trained under.

    `feature_scale` [n * H] brings the target's hidden states, whose sizes differ a hundredfold
    between layers and dimensions, to unit rms, so that one learning rate suits all of `fc`;
    `folded_backbone` moves it into `fc`.
    """

    def __init__(
        self,
        config: DFlashConfig,
        head: Head,
        feature_scale: Tensor,
        confidence: ConfidenceHead | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.backbone = DFlashBackbone(config)
        self.head = head
        self.confidence = confidence
        self.register_buffer("feature_scale", feature_scale)

    def folded_backbone(self) -> dict[str, Tensor]:
        """State dict of the backbone for raw features."""
        state = {key: value.detach().clone() for key, value in self.backbone.state_dict().items()}
        state["fc.weight"] = state["fc.weight"] * self.feature_scale
        return state


def draft_config(target: dict, settings: TrainSettings) -> DFlashConfig:
    """A drafter of the target's layer shape; `target` is the target's config.json."""
    return DFlashConfig(
        hidden_size=target["hidden_size"],
        intermediate_size=target["intermediate_size"],
        num_hidden_layers=settings.layers,
        num_attention_heads=target["num_attention_heads"],
        num_key_value_heads=target["num_key_value_heads"],
        head_dim=target["head_dim"],
        vocab_size=target["vocab_size"],
        block_size=settings.block,
        mask_token_id=settings.mask_token_id,
        target_layer_ids=settings.taps,
        num_target_layers=target["num_hidden_layers"],
        shift_label=True,
        rope_theta=float(target["rope_theta"]),
        max_position_embeddings=target["max_position_embeddings"],
        head=settings.head_config,
        draft_vocab_size=settings.vocab,
    )


def build_model(folder: Path, settings: TrainSettings, feature_scale: Tensor) -> DraftModel:
    """Seeded fresh weights; the head starts without a correction. Raises UserError for settings the
    target does not allow.

    Projections are normal(0, 1/sqrt(fan-in)), so that the layers' output drowns the mask embedding
    in the residual stream (else every slot starts out predicting the mask token), and the final
    norm starts small: near-uniform predictions.
    """
    torch.manual_seed(settings.seed)
    target = read_target_config(folder)
    check_taps(settings.taps, target)
    if settings.mask_token_id >= target["vocab_size"]:
        raise InputError(
            f"mask_token_id = {settings.mask_token_id}: the target has {target['vocab_size']} ids"
        )
    config = draft_config(target, settings)
    head = make_head(settings.head_config, config.hidden_size, config.vocab_size, settings.vocab)
    assert head is not None
    model = DraftModel(
        config, head, feature_scale, make_confidence(config.head, config.hidden_size)
    )
    bind_confidence(model.confidence, head)
    for weight in model.backbone.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    nn.init.constant_(model.backbone.norm.weight, 0.5)
    head.init_training()
    return model


def load_vocabulary(folder: Path, ids: list[int], mask_token_id: int) -> Vocabulary:
    """The target's embedding and lm_head (its embedding where tied), float32."""
    from safetensors import safe_open

    with reading_weights(folder), safe_open(str(folder / WEIGHTS), framework="pt") as file:
        embed = file.get_tensor("model.embed_tokens.weight").float()
        tied = "lm_head.weight" not in file.keys()  # noqa: SIM118 (safe_open has no __contains__)
        return Vocabulary.of(
            embed, embed if tied else file.get_tensor("lm_head.weight").float(), ids, mask_token_id
        )


@dataclass(frozen=True)
class StepLoss:
    """Losses of one step, and the number of rows that had a label. confidence: 0 without such a
    head.
    """

    base: float
    final: float
    rows: int
    confidence: float = 0.0


def trained_parameters(model: DraftModel, stage: str) -> list[nn.Parameter]:
    """What the optimiser sees in a stage."""
    heads = [model.head] if model.confidence is None else [model.head, model.confidence]
    parts: dict[str, list[nn.Module]] = {
        "backbone": [model.backbone],
        "head": heads,
        "joint": [model.backbone, *heads],
    }
    return [p for module in parts[stage] for p in module.parameters()]


def step_gradients(
    model: DraftModel,
    batch: Batch,
    settings: TrainSettings,
    vocabulary: Vocabulary,
    progress: float,
    rng: torch.Generator,
) -> StepLoss:
    """Accumulate the gradients of one batch's loss into the model's trained parameters.

    The head must be bound to the target's embedding table.
    """
    block = batch.labels.shape[2]
    weights = position_weights(block, settings.gamma, settings.first_slot)
    chance = inclusion_probabilities(weights, min(settings.loss_slots, int((weights > 0).sum())))
    shape = batch.labels.shape[:2]
    slots = draw_slots(chance, shape[0] * shape[1], rng)
    labels = batch.labels.flatten(0, 1).gather(1, slots).flatten()
    live = (labels >= 0).nonzero().squeeze(1)
    share = (weights / chance.clamp_min(1e-12))[slots].flatten()
    backbone_trained, corrected = settings.stage != "head", settings.stage != "backbone"
    codes = output = None
    with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bf16()):
        whole = corrected and model.head.reads_block
        with torch.set_grad_enabled(backbone_trained):
            picked = None if whole else slots.view(*shape, -1)
            blocks = block_hidden(model.backbone, batch.inputs, block, picked).flatten(0, 1).float()
            drawn = (
                blocks.gather(1, slots[..., None].expand(-1, -1, blocks.shape[-1]))
                if whole
                else blocks
            )
            hidden = drawn.flatten(0, 1)
        previous = batch.previous.flatten(0, 1)
        if corrected:
            codes = model.head.codes(blocks, previous, slots).flatten(0, 1)[live].float()
            output = model.head.output
        rows = hidden[live]
        result = draft_loss(
            rows.detach(),
            vocabulary.head,
            labels[live],
            share[live],
            codes=None if codes is None else codes.detach(),
            output=None if output is None else output.detach(),
            base_share=settings.base_share(progress),
            hidden_gradient=backbone_trained,
        )
        doubt = None
        if corrected and model.confidence is not None:
            inside = batch.inside.flatten(0, 1).gather(1, slots).flatten()
            accepted = torch.zeros_like(share).index_copy(0, live, result.likelihood)
            logits = model.confidence(
                hidden[inside], previous.gather(1, slots).flatten()[inside]
            ).float()
            doubt = confidence_loss(logits, accepted[inside], share[inside])
    _backward(result, rows, codes, output)
    if doubt is not None:
        doubt.backward()
    return StepLoss(
        result.base, result.final, len(live), 0.0 if doubt is None else float(doubt.detach())
    )


def _backward(
    result: LossResult, hidden: Tensor, codes: Tensor | None, output: nn.Parameter | None
) -> None:
    tensors, gradients = [], []
    for tensor, gradient in (
        (hidden, result.hidden),
        (codes, result.codes),
        (output, result.output),
    ):
        if tensor is not None and gradient is not None and tensor.requires_grad:
            tensors.append(tensor)
            gradients.append(gradient)
    torch.autograd.backward(tensors, gradients)
