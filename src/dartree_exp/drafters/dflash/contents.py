"""The contents of a checkpoint: modules, and the names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.confidence import ConfidenceHead, make_confidence
from dartree_exp.drafters.heads.head import Head, make_head
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.drafters.tensor_files import RESTRICTION

EMBED, LM_HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Parts:
    """The modules of a checkpoint."""

    backbone: DFlashBackbone
    head: Head | None
    confidence: ConfidenceHead | None
    length: LengthHead | None = None

    def prefixed(self) -> Iterator[tuple[str, nn.Module]]:
        """(prefix of its tensors, module)."""
        yield "", self.backbone
        yield from prefixed(self.head, self.confidence)
        if self.length is not None:
            yield self.length.key_prefix, self.length

    def tensors(self) -> dict[str, Tensor]:
        return tensors_of(self.prefixed())


def prefixed(
    head: Head | None, confidence: ConfidenceHead | None
) -> Iterator[tuple[str, nn.Module]]:
    for module in (head, confidence):
        if module is not None:
            yield module.key_prefix, module


def tensors_of(parts: Iterable[tuple[str, nn.Module]]) -> dict[str, Tensor]:
    return {
        prefix + key: value
        for prefix, module in parts
        for key, value in module.state_dict().items()
    }


def fresh(config: DFlashConfig) -> Parts:
    """The modules of a config on the meta device, without memory for their weights."""
    with torch.device("meta"):
        backbone = DFlashBackbone(config)
        head = make_head(config.head, config.hidden_size, config.vocab_size)
        confidence = make_confidence(config.head, config.hidden_size)
        return Parts(backbone, head, confidence, make_length(config))


def make_length(config: DFlashConfig) -> LengthHead | None:
    """The length head of a config, newly initialised, or None."""
    if config.length_width is None:
        return None
    return LengthHead(config.hidden_size, config.length_width, config.block_size)


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {key: value.shape for key, value in tensors.items()}


def whole(config: DFlashConfig, parts: Parts, *, tables: bool) -> dict[str, torch.Size]:
    """The tensors that a folder with a backbone must have: {name: shape}."""
    shapes = shapes_of(parts.tensors())
    if tables:
        shapes |= dict.fromkeys(
            (EMBED, LM_HEAD), torch.Size([config.vocab_size, config.hidden_size])
        )
    if config.draft_vocab_size is not None:
        shapes[RESTRICTION] = torch.Size([config.vocab_size])
    return shapes
