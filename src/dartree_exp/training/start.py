"""Where `training.init` starts a run: from another run's averaged weights, or on the backbone of an
exported drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dartree_exp.config.training import TrainingConfig
from dartree_exp.drafters.dflash.checkpoint import Checkpoint, read_checkpoint
from dartree_exp.drafters.heads.config import CheckpointError
from dartree_exp.training.card import CARD, read_card
from dartree_exp.training.errors import InputError
from dartree_exp.training.settings import corrects, from_json
from dartree_exp.training.state import load_state

BACKBONE, LENGTH = "backbone.", "length."


@dataclass(frozen=True)
class Start:
    """weights: by name in the state dict of a `DraftModel`; those it lacks stay fresh. scale: of
    the features under which they were trained; None: of raw features.
    """

    weights: dict[str, Tensor]
    scale: Tensor | None

    @property
    def layers(self) -> int:
        """Of the backbone."""
        return sum(name.endswith(".mlp.down_proj.weight") for name in self.weights)

    def under(self, scale: Tensor) -> dict[str, Tensor]:
        """The weights for features that `scale` [n * H] multiplies."""
        if self.scale is not None:
            return self.weights
        name = f"{BACKBONE}fc.weight"
        return {**self.weights, name: self.weights[name] / scale}


@dataclass(frozen=True)
class Given:
    """What a drafter at `training.init` was made with. ids: int64 [Vd], its drafting vocabulary.
    held_out: the samples of each domain that it was not trained on, and the seed that chose them.
    """

    ids: Tensor
    taps: tuple[int, ...]
    layers: int
    block: int
    anchor_first: bool = True
    held_out: tuple[int, int] | None = None


def read_given(init: Path) -> Given:
    """Raises UserError for a folder that is neither a run nor an exported drafter."""
    saved = load_state(init)
    if saved is not None:
        s, taps = from_json(saved[1]["settings"])
        held_out = _held_out(saved[1].get("data"))
        return Given(saved[0]["vocabulary"]["ids"], taps, s.layers, s.block, held_out=held_out)
    stored = _exported(init)
    c = stored.config
    ids = torch.arange(c.vocab_size) if stored.vocab_ids is None else stored.vocab_ids
    card = read_card(init) if (init / CARD).is_file() else {"data": {}}
    made = c.target_layer_ids, c.num_hidden_layers, c.block_size, c.shift_label
    return Given(ids, *made, _held_out(card["data"].get("record")))


def _held_out(record: dict[str, Any] | None) -> tuple[int, int] | None:
    """What a record of the training text says."""
    if record is None or not {"holdout", "seed"} <= record.keys():
        return None
    return record["holdout"], record["seed"]


def read_start(init: Path, s: TrainingConfig, taps: tuple[int, ...], ids: Tensor) -> Start:
    """The weights that a training with these settings, drafting over `ids` int64 [Vd], takes from
    `init`: the backbone, and from a run that trained the same kind of head also that head.

    Raises InputError: neither a run nor an exported drafter, one that reads other layers or fills
    blocks with another id, or a head over other ids. A backbone alone does not depend on them.
    """
    saved = load_state(init)
    if saved is not None:
        tensors, meta = saved
        old, read = from_json(meta["settings"])
        if old.family != s.family:
            raise InputError(
                f"training.init={init}: trained training.family={old.family}, not {s.family}"
            )
        weights = {**tensors["model"], **tensors["ema"]}
        scale, mask, causal = weights.pop("feature_scale"), old.mask_token_id, old.causal
        with_head = corrects(old.stage) and corrects(s.stage) and old.head == s.head
        if with_head and not torch.equal(tensors["vocabulary"]["ids"], ids):
            raise InputError(
                f"training.init={init}: its head drafts over other ids than data and "
                "training.vocab give"
            )
        if not with_head:
            kept = (BACKBONE, LENGTH) if old.length_width == s.length_width else (BACKBONE,)
            weights = {key: value for key, value in weights.items() if key.startswith(kept)}
    else:
        if s.family != "dflash":
            raise InputError(
                f"training.init={init}: not a run with a checkpoint; with "
                f"training.family={s.family} a training starts from a run only"
            )
        stored = _exported(init)
        weights = {BACKBONE + name: value for name, value in stored.backbone.state_dict().items()}
        if stored.length is not None and stored.length.width == s.length_width:
            head = stored.length.state_dict()
            weights |= {LENGTH + name: value for name, value in head.items()}
        read, mask, scale = stored.config.target_layer_ids, stored.config.mask_token_id, None
        causal = stored.config.causal
    start = Start(weights, scale)
    if s.stage == "head" and start.layers != s.layers:
        raise InputError(
            f"training.init={init}: its backbone has {start.layers} layers; set "
            f"training.layers={start.layers}, not {s.layers}"
        )
    for what, there, here in (
        ("taps", list(read), list(taps)),
        ("mask_token_id", mask, s.mask_token_id),
        ("causal", causal, s.causal),
    ):
        if there != here:
            raise InputError(f"training.init={init}: its backbone has {what} = {there}, not {here}")
    return start


def _exported(init: Path) -> Checkpoint:
    """The backbone of an exported drafter, and its length head, in float32. Raises InputError."""
    try:
        return read_checkpoint(init, use_head=False, dtype=torch.float32)
    except CheckpointError as error:
        raise InputError(
            f"training.init={init}: neither a run with a checkpoint nor an exported drafter "
            f"({error})"
        ) from error
