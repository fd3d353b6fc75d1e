"""Drafting with a trained drafter, bound to the target's embedding and vocabulary head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.drafters.block_session import BlockDrafter
from dartree_exp.drafters.dflash.fit import check_fit
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.dflash.packed import PackedBackbone
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.edges import Pairs
from dartree_exp.drafters.heads.head import Head
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.interfaces import Block
from dartree_exp.kernels.packed_linear import packed_linear
from dartree_exp.models.digests import digest_of_files

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


class DFlashDrafter(BlockDrafter):
    """DFlash; Domino with a GRU head, DSpark with a Markov head (arXiv 2602.06036, 2605.29707,
    2607.05147).

    See `interfaces.Drafter`.

    vocab_ids: int64 [Vd], ascending target ids in the drafting softmax; None = the whole
    vocabulary. Backbone and head may have another dtype than the target; logits are computed in the
    target's. Raises CheckpointError if the checkpoint does not fit the target.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        backbone: DFlashBackbone,
        head: Head | None = None,
        vocab_ids: Tensor | None = None,
        weight_files: Sequence[Path] = (),
        confidence: ConfidenceHead | None = None,
        length: LengthHead | None = None,
    ) -> None:
        config = backbone.config
        check_fit(config, target)
        self.name = name
        self.num_drafts = config.num_drafts
        self.block_size = config.block_size
        self.target_layer_ids = config.target_layer_ids
        self.max_positions = config.max_position_embeddings
        self._weight_files = tuple(weight_files)
        self.backbone = backbone
        self.packed = PackedBackbone(backbone)
        self.vocab_ids = None if vocab_ids is None else vocab_ids.to(target.device)
        tables = target.embed_weight, self.vocab_ids, target.lm_head_weight
        self.head: Head | None = None if head is None else head.bind(*tables)
        self.confidence, self.length = confidence, length
        self.edge_pairs: Pairs = {}
        self.coupled_pairs: Pairs = {}
        self._embed = target.embed_weight
        self._block = self._embed[[config.mask_token_id] * config.block_size].to(
            backbone.fc.weight.dtype
        )
        # Rows of the restricted vocabulary are copied once, so each round reads only those.
        lm_head = target.lm_head_weight
        self.logits = packed_linear(lm_head if self.vocab_ids is None else lm_head[self.vocab_ids])
        self.logits_dtype = lm_head.dtype

    def block_embeds(self, root: int) -> Tensor:
        """Block input [b, H]: the root's embedding, then the mask token's in every other slot."""
        embeds = self._block.clone()
        embeds[0] = self._embed[root]
        return embeds

    @cached_property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weight files, in order; None for modules without files."""
        if not self._weight_files:
            return None
        return digest_of_files(self._weight_files)

    def session(self, prompt_ids: Sequence[int], sampler: object = None) -> DFlashSession:
        return DFlashSession(self)


class DFlashSession:
    """Drafting of one prompt. The draft cache has keys and values of all tokens before the root."""

    def __init__(self, drafter: DFlashDrafter) -> None:
        self._drafter = drafter
        self.cache = drafter.backbone.new_cache()

    @torch.no_grad()
    def propose(self, features: Tensor | None, root: int, start: int) -> Block:
        drafter, config = self._drafter, self._drafter.backbone.config
        if features is None or self.cache.length + features.shape[0] != start:
            got = "none" if features is None else features.shape[0]
            raise ValueError(
                f"drafter {drafter.name}: features of {start - self.cache.length} tokens are "
                f"needed to reach position {start}, got {got}"
            )
        if start + config.block_size > config.max_position_embeddings:
            raise ValueError(
                f"drafter {drafter.name}: a block at position {start} passes "
                f"max_position_embeddings = {config.max_position_embeddings}"
            )
        embeds = drafter.block_embeds(root)
        hidden = drafter.packed(features, embeds, self.cache)
        hidden = hidden[config.block_size - config.num_drafts :]  # fill-in: without the root's slot
        logits = drafter.logits(hidden.to(drafter.logits_dtype)).float()
        return Block(hidden, logits, drafter.vocab_ids)
