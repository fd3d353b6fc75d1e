"""The trained modules and one training step's loss and gradients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dartree_exp.drafters.backbone import DFlashBackbone
from dartree_exp.drafters.dflash_config import DFlashConfig
from dartree_exp.drafters.heads import GRUHead
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.training.batches import Batch, Vocabulary
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.losses import LossResult, draft_loss, draw_slots, inclusion_probabilities, position_weights
from dartree_exp.training.settings import TrainSettings


class DraftModel(nn.Module):
    """Backbone, GRU head over the drafting vocabulary, and the feature scale the backbone is trained under.

    `feature_scale` [n * H] brings the target's hidden states, whose sizes differ a hundredfold between layers and
    dimensions, to unit rms, so that one learning rate suits all of `fc`; `folded_backbone` moves it into `fc`.
    """

    def __init__(self, config: DFlashConfig, head: GRUHead, feature_scale: Tensor) -> None:
        super().__init__()
        self.config = config
        self.backbone = DFlashBackbone(config)
        self.head = head
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
        projector_type="domino",
        emb_dim=settings.rank,
        gru_hidden_dim=settings.gru_width,
        pure_draft_prefix_len=settings.pure_prefix,
        draft_vocab_size=settings.vocab,
    )


def build_model(folder: Path, settings: TrainSettings, feature_scale: Tensor) -> DraftModel:
    """Seeded fresh weights; W2 starts at zero (no correction yet).

    Projections are normal(0, 1/sqrt(fan-in)), so that the layers' output drowns the mask embedding in the residual stream
    (else every slot starts out predicting the mask token), and the final norm starts small: near-uniform predictions.
    """
    torch.manual_seed(settings.seed)
    config = draft_config(json.loads((folder / "config.json").read_text()), settings)
    head = GRUHead(config.hidden_size, settings.vocab, settings.gru_width, settings.rank, settings.pure_prefix)
    model = DraftModel(config, head, feature_scale)
    for weight in model.backbone.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    nn.init.constant_(model.backbone.norm.weight, 0.5)
    nn.init.normal_(head.embed_proj[0].weight, std=(config.hidden_size + settings.gru_width) ** -0.5)
    nn.init.zeros_(head.embed_proj[2].weight)
    return model


def load_vocabulary(folder: Path, ids: list[int], mask_token_id: int) -> Vocabulary:
    """The target's embedding and lm_head (its embedding where tied), float32."""
    from safetensors import safe_open

    with safe_open(str(folder / "model.safetensors"), framework="pt") as file:
        embed = file.get_tensor("model.embed_tokens.weight").float()
        tied = "lm_head.weight" not in file.keys()  # noqa: SIM118 (safe_open has no __contains__)
        return Vocabulary.of(embed, embed if tied else file.get_tensor("lm_head.weight").float(), ids, mask_token_id)


@dataclass(frozen=True)
class StepLoss:
    """Losses of one step, and the number of rows that had a label."""

    base: float
    final: float
    rows: int


def trained_parameters(model: DraftModel, stage: str) -> list[nn.Parameter]:
    """What the optimiser sees in a stage."""
    parts: dict[str, list[nn.Module]] = {
        "backbone": [model.backbone],
        "head": [model.head],
        "joint": [model.backbone, model.head],
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
    """Accumulate the gradients of one batch's loss into the model's trained parameters."""
    block = batch.labels.shape[2]
    weights = position_weights(block, settings.gamma, settings.first_slot)
    chance = inclusion_probabilities(weights, min(settings.loss_slots, int((weights > 0).sum())))
    shape = batch.labels.shape[:2]
    slots = draw_slots(chance, shape[0] * shape[1], rng).view(*shape, -1)
    labels = batch.labels.gather(2, slots)
    live = (labels >= 0).flatten().nonzero().squeeze(1)
    share = (weights / chance.clamp_min(1e-12))[slots].flatten()[live]
    backbone_trained = settings.stage != "head"
    with torch.autocast("cpu", torch.bfloat16, enabled=cpu_has_bf16()):
        with torch.set_grad_enabled(backbone_trained):
            hidden = block_hidden(model.backbone, batch.inputs, block, slots).flatten(0, 2)[live].float()
        codes = output = None
        if settings.stage != "backbone":
            codes = _codes(model.head, hidden, batch, slots, live, vocabulary).float()
            output = model.head.embed_proj[2].weight
        result = draft_loss(
            hidden.detach(),
            vocabulary.head,
            labels.flatten()[live],
            share,
            codes=None if codes is None else codes.detach(),
            output=None if output is None else output.detach(),
            base_share=settings.base_share(progress),
            hidden_gradient=backbone_trained,
        )
    _backward(result, hidden, codes, output)
    return StepLoss(result.base, result.final, len(live))


def _codes(head: GRUHead, hidden: Tensor, batch: Batch, slots: Tensor, live: Tensor, vocabulary: Vocabulary) -> Tensor:
    """silu(W1 [z ; s]) [N, E] at the drawn slots; zero at slots before the head's prefix."""
    blocks = batch.previous.flatten(0, 1)
    states = head.states(vocabulary.embed[blocks])
    picked = slots.flatten(0, 1)
    states = states.gather(1, picked[..., None].expand(-1, -1, states.shape[-1])).flatten(0, 1)[live]
    w_slot, w_state = head.embed_proj[0].weight.split([hidden.shape[-1], states.shape[-1]], dim=1)
    codes = nn.functional.silu(hidden @ w_slot.T + states @ w_state.T)
    return codes * (picked.flatten()[live] >= head.pure_draft_prefix_len)[:, None]


def _backward(result: LossResult, hidden: Tensor, codes: Tensor | None, output: nn.Parameter | None) -> None:
    tensors, gradients = [], []
    for tensor, gradient in ((hidden, result.hidden), (codes, result.codes), (output, result.output)):
        if tensor is not None and gradient is not None and tensor.requires_grad:
            tensors.append(tensor)
            gradients.append(gradient)
    torch.autograd.backward(tensors, gradients)
