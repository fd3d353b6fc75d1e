"""What each slot of a block drafts, for every family that is trained: hidden states whose products
with a vocabulary head are the logits.
"""

from __future__ import annotations

from torch import Tensor

from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.training.batches import Batch
from dartree_exp.training.eagle import eagle_hidden
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.medusa import medusa_hidden

Backbone = DFlashBackbone | EagleModel | MedusaHeads


def slot_hidden(
    backbone: Backbone, batch: Batch, embed: Tensor, slots: Tensor | None = None
) -> Tensor:
    """[S, A, R, H] of slots int64 [S, A, R] of each block (None: all); slot k says the token at
    anchor + k + 1. embed: [V, H], the target's.
    """
    if isinstance(backbone, EagleModel):
        return eagle_hidden(backbone, batch, embed, slots)
    if isinstance(backbone, MedusaHeads):
        return medusa_hidden(backbone, batch, slots)
    return block_hidden(backbone, batch.inputs, batch.labels.shape[2], slots)


def own_head(backbone: Backbone) -> Tensor | None:
    """[Vd, H], the vocabulary head trained with the backbone; None: the target's is used."""
    return backbone.lm_head.weight if isinstance(backbone, EagleModel) else None
