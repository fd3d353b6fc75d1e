"""An exported drafter as the training code computes with it: float32, its head over the drafting
vocabulary alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.head import AdditiveHead, Head, make_head
from dartree_exp.engines.target import Target
from dartree_exp.models.fetch import sha256_of
from dartree_exp.training.batches import Vocabulary
from dartree_exp.training.model import load_vocabulary


@dataclass(frozen=True)
class Exported:
    """Modules in float32; the head, if there is one, is bound and corrects the columns of
    `vocabulary`.
    """

    config: DFlashConfig
    backbone: DFlashBackbone
    head: Head | None
    vocabulary: Vocabulary


def load_exported(folder: Path, target: Target) -> Exported:
    """Read an exported folder for its target. Raises CheckpointError."""
    stored = read_checkpoint(folder, dtype=torch.float32)
    ids = torch.arange(stored.config.vocab_size) if stored.vocab_ids is None else stored.vocab_ids
    vocabulary = load_vocabulary(target, ids.tolist(), stored.config.mask_token_id)
    head = None if stored.head is None else narrow_head(stored.head, ids, stored.config.vocab_size)
    if head is not None:
        head.bind(vocabulary.embed, lm_head=vocabulary.head)
    return Exported(stored.config, stored.backbone, head, vocabulary)


def full_head(head: Head, ids: Tensor, vocab_size: int) -> Head:
    """The head over the target's whole vocabulary: output rows of ids outside the drafting
    vocabulary are zero. Itself if its output is the target's.
    """
    if not isinstance(head, AdditiveHead) or head.output_key is None:
        return head
    rows = torch.zeros(vocab_size, head.output.shape[1])
    rows[ids] = head.output.detach()
    return _with_output(head, rows, vocab_size)


def narrow_head(head: Head, ids: Tensor, vocab_size: int) -> Head:
    """The opposite of `full_head`: only the output rows of the drafting vocabulary `ids` int64
    [Vd]. Itself if its output is the target's.
    """
    if not isinstance(head, AdditiveHead) or head.output_key is None:
        return head
    return _with_output(head, head.output.detach()[ids].clone(), vocab_size)


def _with_output(head: AdditiveHead, rows: Tensor, vocab_size: int) -> Head:
    copy = make_head(head.config(), head.hidden_size, vocab_size, len(rows))
    assert copy is not None
    copy.load_state_dict({**head.state_dict(), str(head.output_key): rows})
    return copy.requires_grad_(False)


def weights_of(folder: Path) -> list[str]:
    """sha256 of each weights file that a drafter folder reads: of its backbone, then of a head's
    own file.
    """
    return [sha256_of(file) for file in read_checkpoint(folder).weight_files]
