"""Where `--init` starts a run: from another run's averaged weights, or on the backbone of an
exported drafter.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.drafters.heads.config import CheckpointError
from dartree_exp.training.errors import InputError
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import load_state


def starting_state(init: Path, ids: Tensor) -> tuple[dict[str, dict[str, Tensor]], str | None]:
    """(groups "model" and "ema" as in a checkpoint, the run's kind of head or None) for a run that
    drafts over `ids`.

    An exported folder gives its backbone only, in float32 and for raw features: its feature scale
    is one.

    Raises:
        InputError: neither a run nor an exported drafter, or one that drafts over other ids.
    """
    saved = load_state(init)
    if saved is not None:
        return saved[0], from_json(saved[1]["settings"]).head
    try:
        stored = read_checkpoint(init, use_head=False, dtype=torch.float32)
    except CheckpointError as error:
        raise InputError(
            f"--init {init}: neither a run with a checkpoint nor an exported drafter ({error})"
        ) from error
    if stored.vocab_ids is None or not torch.equal(stored.vocab_ids, ids):
        raise InputError(f"--init {init}: drafts over other ids than --data and --vocab give")
    backbone = {f"backbone.{name}": value for name, value in stored.backbone.state_dict().items()}
    scale = torch.ones(stored.backbone.fc.weight.shape[1])
    return {"model": {**backbone, "feature_scale": scale}, "ema": backbone}, None
