"""The trained modules, fresh, and the tables of the target that they borrow."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dartree_exp.config.training import ON_POLICY, TrainingConfig
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.contents import make_length
from dartree_exp.drafters.dflash.model import DFlashBackbone, DFlashLayer
from dartree_exp.drafters.eagle.config import EAGLE3, EagleConfig
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.heads.confidence import ConfidenceHead, bind_confidence, make_confidence
from dartree_exp.drafters.heads.config import fresh
from dartree_exp.drafters.heads.head import Head, make_head
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.drafters.medusa.config import MedusaConfig
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.engines.batched import layer_shape
from dartree_exp.engines.target import Target
from dartree_exp.training.batches import Vocabulary
from dartree_exp.training.drafted import Backbone
from dartree_exp.training.errors import InputError
from dartree_exp.training.target import check_taps


class DraftModel(nn.Module):
    """Backbone, correction head over the drafting vocabulary (DFlash), and the feature scale the
    backbone is trained under.

    `feature_scale` [n * H] brings the target's hidden states, whose sizes differ a hundredfold
    between layers and dimensions, to unit rms, so that one learning rate suits all of `fc`;
    `folded_backbone` moves it into `fc`.
    """

    feature_scale: Tensor

    def __init__(
        self,
        backbone: Backbone,
        feature_scale: Tensor,
        head: Head | None = None,
        confidence: ConfidenceHead | None = None,
        length: LengthHead | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.confidence, self.length = confidence, length
        self.register_buffer("feature_scale", feature_scale)

    def folded_backbone(self) -> dict[str, Tensor]:
        """State dict of the backbone for raw features."""
        state = {key: value.detach().clone() for key, value in self.backbone.state_dict().items()}
        if "fc.weight" in state:
            state["fc.weight"] = state["fc.weight"] * self.feature_scale
        return state


def build_model(
    target: Target, settings: TrainingConfig, taps: tuple[int, ...], feature_scale: Tensor
) -> DraftModel:
    """Seeded fresh weights; the head starts without a correction, and EAGLE's vocabulary head is
    random (the trainer starts it from the target's). Raises UserError for settings the target does
    not allow.

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
    if settings.family == "medusa":
        config = MedusaConfig(settings.block, medusa_shared_lm_head=True)
        heads = MedusaHeads(config, target.hidden_size, target.vocab_size)
        return DraftModel(heads, feature_scale)
    if settings.family == "eagle":
        del shape["num_target_layers"]
        eagle = EagleModel(
            EagleConfig(
                EAGLE3,
                **shape,
                rms_norm_eps=1e-6,
                draft_vocab_size=settings.vocab or target.vocab_size,
                aux_ids=tuple(tap + 1 for tap in taps),
            ),
            len(taps),
        )
        _fill(eagle)
        return DraftModel(eagle, feature_scale)
    dflash = DFlashConfig(
        **shape,
        num_hidden_layers=settings.layers,
        block_size=settings.block,
        mask_token_id=settings.mask_token_id,
        target_layer_ids=taps,
        shift_label=True,
        head=None if settings.stage == ON_POLICY else fresh(settings.head, settings),
        draft_vocab_size=settings.vocab,
        causal=settings.causal,
        length_width=settings.length_width or None,
    )
    head = make_head(dflash.head, dflash.hidden_size, dflash.vocab_size, settings.vocab)
    backbone = DFlashBackbone(dflash)
    confidence = make_confidence(dflash.head, dflash.hidden_size)
    bind_confidence(confidence, head)
    _fill(backbone)
    if head is not None:
        head.init_training()
    return DraftModel(backbone, feature_scale, head, confidence, make_length(dflash))


def _fill(backbone: DFlashBackbone | EagleModel) -> None:
    for weight in backbone.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    nn.init.constant_(backbone.norm.weight, 0.5)


def pass_through(model: DraftModel, deeper_than: int) -> None:
    """Let the layers of a DFlash backbone from this number on add nothing, so that a deeper one
    starts as the shallower one whose weights it has.
    """
    if not isinstance(model.backbone, DFlashBackbone):
        return
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
    heads: list[nn.Module] = [m for m in (model.head, model.confidence) if m is not None]
    parts: dict[str, list[nn.Module]] = {
        "backbone": [model.backbone],
        "head": heads,
        "joint": [model.backbone, *heads],
        ON_POLICY: [model.backbone, *([] if model.length is None else [model.length])],
    }
    return [p for module in parts[stage] for p in module.parameters()]
