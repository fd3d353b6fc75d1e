"""An exported drafter as the training code computes with it: float32, its correction head over the
drafting vocabulary alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.drafters.eagle.checkpoint import read_model
from dartree_exp.drafters.eagle.config import read_eagle3
from dartree_exp.drafters.heads.head import AdditiveHead, Head, make_head
from dartree_exp.drafters.medusa.checkpoint import read_heads
from dartree_exp.drafters.tensor_files import weight_files
from dartree_exp.engines.target import Target
from dartree_exp.models.fetch import sha256_of
from dartree_exp.training.batches import Vocabulary
from dartree_exp.training.card import CARD, read_card, weights_file
from dartree_exp.training.drafted import Backbone
from dartree_exp.training.model import load_vocabulary

TEST_STEPS = 7
"""Drafts after a root that are measured of EAGLE-3, which has no block."""


@dataclass(frozen=True)
class Exported:
    """Modules in float32; the head, if there is one, is bound and corrects the columns of
    `vocabulary`. taps: layers of the target that are read; None: none. block: drafts after a root.
    """

    taps: tuple[int, ...] | None
    block: int
    backbone: Backbone
    head: Head | None
    vocabulary: Vocabulary


def load_exported(folder: Path, target: Target) -> Exported:
    """Read an exported folder for its target. Raises CheckpointError."""
    family = family_of(folder)
    if family == "medusa":
        heads = read_heads(folder, target.hidden_size, target.vocab_size).float()
        every = load_vocabulary(target, list(range(target.vocab_size)), 0)
        return Exported(None, len(heads), heads, None, every)
    if family == "eagle":
        config = read_eagle3(folder)
        taps = config.taps(target.num_layers)
        eagle, _, drafted = read_model(folder, config, len(taps))
        drafted = torch.arange(target.vocab_size) if drafted is None else drafted
        vocabulary = load_vocabulary(target, drafted.tolist(), 0)
        return Exported(taps, TEST_STEPS, eagle.float(), None, vocabulary)
    stored = read_checkpoint(folder, dtype=torch.float32)
    ids = torch.arange(stored.config.vocab_size) if stored.vocab_ids is None else stored.vocab_ids
    vocabulary = load_vocabulary(target, ids.tolist(), stored.config.mask_token_id)
    head = None if stored.head is None else narrow_head(stored.head, ids, stored.config.vocab_size)
    if head is not None:
        head.bind(vocabulary.embed, lm_head=vocabulary.head)
    read, block = stored.config.target_layer_ids, stored.config.block_size
    return Exported(read, block, stored.backbone, head, vocabulary)


def family_of(folder: Path) -> str:
    """`training.family` of an exported folder, as its card says; dflash without a card."""
    if not (folder / CARD).is_file():
        return "dflash"
    return str(read_card(folder)["stages"][-1]["settings"].get("family", "dflash"))


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
    if family_of(folder) == "dflash":
        return [sha256_of(file) for file in read_checkpoint(folder).weight_files]
    return [sha256_of(file) for file in weight_files(folder, weights_file(folder))]
