"""The trained modules, fresh, and the tables of the target that they borrow."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dartree_exp.config.training import TrainingConfig
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone, DFlashLayer
from dartree_exp.drafters.heads.confidence import ConfidenceHead, bind_confidence, make_confidence
from dartree_exp.drafters.heads.config import fresh
from dartree_exp.drafters.heads.head import Head, make_head
from dartree_exp.engines.batched import layer_shape
from dartree_exp.engines.target import Target
from dartree_exp.training.batches import Vocabulary
from dartree_exp.training.errors import InputError
from dartree_exp.training.target import check_taps


class DraftModel(nn.Module):
    """Backbone, correction head over the drafting vocabulary, and the feature scale the backbone is
    trained under.

    `feature_scale` [n * H] brings the target's hidden states, whose sizes differ a hundredfold
    between layers and dimensions, to unit rms, so that one learning rate suits all of `fc`;
    `folded_backbone` moves it into `fc`.
    """

    feature_scale: Tensor

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


def build_model(
    target: Target, settings: TrainingConfig, taps: tuple[int, ...], feature_scale: Tensor
) -> DraftModel:
    """Seeded fresh weights; the head starts without a correction. Raises UserError for settings the
    target does not allow.

    Projections are normal(0, 1/sqrt(fan-in)), so that the layers' output drowns the mask embedding
    in the residual stream (else every slot starts out predicting the mask token), and the final
    norm starts small: near-uniform predictions.
    """
    check_taps(taps, target)
    if settings.mask_token_id >= target.vocab_size:
        raise InputError(
            f"training.mask_token_id={settings.mask_token_id}: the target has "
            f"{target.vocab_size} ids"
        )
    torch.manual_seed(settings.seed)
    shape: dict[str, Any] = layer_shape(target)
    config = DFlashConfig(
        **shape,
        num_hidden_layers=settings.layers,
        block_size=settings.block,
        mask_token_id=settings.mask_token_id,
        target_layer_ids=taps,
        shift_label=True,
        head=fresh(settings.head, settings),
        draft_vocab_size=settings.vocab,
        causal=settings.causal,
    )
    head = make_head(config.head, config.hidden_size, config.vocab_size, settings.vocab)
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


def pass_through(model: DraftModel, deeper_than: int) -> None:
    """Let the backbone's layers from this number on add nothing, so that a deeper backbone starts
    as the shallower one whose weights it has.
    """
    for module in list(model.backbone.layers)[deeper_than:]:
        layer = cast(DFlashLayer, module)  # torch types a ModuleList's items as modules
        nn.init.zeros_(layer.self_attn.o_proj.weight)
        nn.init.zeros_(layer.mlp.down_proj.weight)


def load_vocabulary(target: Target, ids: list[int], mask_token_id: int) -> Vocabulary:
    """The target's embedding and lm_head, float32."""
    return Vocabulary.of(
        target.embed_weight.float(), target.lm_head_weight.float(), ids, mask_token_id
    )


def trained_parameters(model: DraftModel, stage: str) -> list[nn.Parameter]:
    """What the optimiser sees in a stage."""
    heads: list[nn.Module] = (
        [model.head] if model.confidence is None else [model.head, model.confidence]
    )
    parts: dict[str, list[nn.Module]] = {
        "backbone": [model.backbone],
        "head": heads,
        "joint": [model.backbone, *heads],
    }
    return [p for module in parts[stage] for p in module.parameters()]
