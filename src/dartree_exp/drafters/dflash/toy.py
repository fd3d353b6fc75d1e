"""A tiny untrained drafter for the toy target: the real backbone and heads with random weights.

Every method runs with it without a download. Its drafts are nearly always wrong, so its times and
acceptance mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.contents import make_length
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.dflash.session import DFlashDrafter
from dartree_exp.drafters.heads.confidence import bind_confidence, make_confidence
from dartree_exp.drafters.heads.config import fresh
from dartree_exp.drafters.heads.head import make_head
from dartree_exp.drafters.heads.spec import NO_HEAD
from dartree_exp.drafters.seeded import fill
from dartree_exp.models.toy import MASK_ID

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

BLOCK, RANK = 6, 8


@dataclass(frozen=True)
class _Sizes:
    rank: int = RANK
    gru_width: int = RANK
    markov_rank: int = RANK
    swiglu_width: int = RANK
    latents: int = 3
    latent_rank: int = RANK
    latent_prior: str = "slot"
    pure_prefix: int = 1


def toy_drafter(
    target: Target,
    head: str,
    seed: int,
    name: str,
    causal: bool = False,
    block_size: int | None = None,
) -> DFlashDrafter:
    """A drafter with 6 drafts per block. head: `none` or the name of a head, with a confidence head
    if that kind may have one. Every one has a length head.

    The backbone's weights depend only on the seed, not on the head.
    """
    sizes = None if head == NO_HEAD else fresh(head, _Sizes())
    config = DFlashConfig(
        hidden_size=target.hidden_size,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=target.vocab_size,
        block_size=block_size or BLOCK,
        mask_token_id=MASK_ID,
        target_layer_ids=(1,),
        num_target_layers=target.num_layers,
        shift_label=True,
        max_position_embeddings=target.max_positions,
        head=sizes,
        causal=causal,
        length_width=RANK,
    )
    backbone = DFlashBackbone(config)
    correction = make_head(sizes, config.hidden_size, config.vocab_size)
    confidence = bind_confidence(make_confidence(sizes, config.hidden_size), correction)
    length = make_length(config)
    for module in (backbone, correction, confidence, length):
        if module is not None:
            fill(module, seed)
            module.requires_grad_(False).to(target.device, target.dtype)
    return DFlashDrafter(name, target, backbone, correction, confidence=confidence, length=length)
