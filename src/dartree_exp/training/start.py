"""Where `training.init` starts a run: from another run's averaged weights, or on the backbone of an
exported drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.config.training import TrainingConfig
from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.drafters.heads.config import CheckpointError
from dartree_exp.training.errors import InputError
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import load_state

BACKBONE = "backbone."


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
        with_head = "backbone" not in (old.stage, s.stage) and old.head == s.head
        if with_head and not torch.equal(tensors["vocabulary"]["ids"], ids):
            raise InputError(
                f"training.init={init}: its head drafts over other ids than data and "
                "training.vocab give"
            )
        if not with_head:
            weights = {key: value for key, value in weights.items() if key.startswith(BACKBONE)}
    else:
        if s.family != "dflash":
            raise InputError(
                f"training.init={init}: not a run with a checkpoint; with "
                f"training.family={s.family} a training starts from a run only"
            )
        try:
            stored = read_checkpoint(init, use_head=False, dtype=torch.float32)
        except CheckpointError as error:
            raise InputError(
                f"training.init={init}: neither a run with a checkpoint nor an exported drafter "
                f"({error})"
            ) from error
        weights = {BACKBONE + name: value for name, value in stored.backbone.state_dict().items()}
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
