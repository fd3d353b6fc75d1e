"""What a training run is made of; one dataclass, filled from the command line and stored in every
checkpoint.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dartree_exp.drafters.heads.config import HeadConfig, fresh
from dartree_exp.drafters.heads.spec import HEADS
from dartree_exp.training.errors import InputError, first_line

_ANY = math.inf
_TINY = 1e-12
_RANGES = {
    **dict.fromkeys(
        ("layers", "short_block", "loss_slots", "vocab", "gru_width", "rank", "markov_rank"),
        (1, _ANY),
    ),
    **dict.fromkeys(("samples", "anchors", "warmup_steps"), (1, _ANY)),
    **dict.fromkeys(("pure_prefix", "weight_decay", "mask_token_id"), (0, _ANY)),
    **dict.fromkeys(("gamma", "lr", "clip"), (_TINY, _ANY)),
    **dict.fromkeys(("short_until", "base_decay", "ema"), (0, 1)),
    "block": (2, 1024),
    "beta2": (0, 1 - _TINY),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class TrainSettings:
    """Objective, model shape and schedule. `stage`: backbone = DFlash (base loss only); head = the
    correction head `head` on the frozen backbone; joint = both, with the base-to-final curriculum.
    Text, objective and steps do not depend on the head, so that heads trained on one backbone can
    be compared.
    """

    stage: str = "backbone"
    head: str = "gru"
    layers: int = 2
    taps: tuple[int, ...] = (1, 8, 15, 22, 27)
    block: int = 16
    short_block: int = 8
    short_until: float = 0.0
    gamma: float = 4.0
    loss_slots: int = 4
    vocab: int = 8192
    gru_width: int = 256
    rank: int = 128
    markov_rank: int = 64
    pure_prefix: int = 1
    samples: int = 8
    anchors: int = 32
    lr: float = 1e-3
    beta2: float = 0.98
    weight_decay: float = 0.0
    warmup_steps: int = 40
    clip: float = 1.0
    ema: float = 0.995
    base_decay: float = 1.0
    mask_token_id: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                limits = f"{low:g}..{high:g}" if math.isfinite(high) else f"at least {low:g}"
                raise InputError(f"{name} = {value}: must be {limits}")
        if not self.taps or len(set(self.taps)) < len(self.taps) or min(self.taps) < 0:
            raise InputError(f"taps = {self.taps}: must be distinct layers, at least one")
        if self.pure_prefix >= self.block:
            raise InputError(
                f"pure_prefix = {self.pure_prefix}: must be less than block = {self.block}"
            )
        if self.stage not in ("backbone", "head", "joint"):
            raise InputError(f"stage = {self.stage!r}: backbone, head or joint")
        if self.head not in HEADS:
            raise InputError(f"head = {self.head!r}: {', '.join(HEADS)}")
        if not 1 <= self.short_block <= self.block:
            raise InputError(
                f"short_block = {self.short_block}: must lie in 1..block = 1..{self.block}"
            )

    def block_at(self, progress: float) -> int:
        """Slots per block: short blocks for the first part of the run, where they teach as much for
        half the work.
        """
        return self.short_block if progress < self.short_until else self.block

    def lr_at(self, progress: float, step: int) -> float:
        """Linear warm-up over steps times linear decay to zero over the run's progress in 0..1."""
        return self.lr * min(1.0, (step + 1) / self.warmup_steps) * max(0.0, 1.0 - progress)

    def base_share(self, progress: float) -> float:
        """Weight of the base loss: 1 for the backbone, 0 for the head, from 1 linearly to 0 when
        trained jointly.
        """
        if self.stage != "joint":
            return float(self.stage == "backbone")
        return max(0.0, 1.0 - progress / self.base_decay) if self.base_decay > 0 else 0.0

    @property
    def first_slot(self) -> int:
        """First slot with loss: a head alone cannot change the slots before its prefix."""
        return self.head_config.pure_draft_prefix_len if self.stage == "head" else 0

    @property
    def head_config(self) -> HeadConfig:
        """The head's sizes; Markov heads are trained with a confidence head."""
        return fresh(self.head, self)


HELP = {
    "stage": "backbone | head | joint",
    "head": " | ".join(HEADS),
    "rank": "of the GRU head's output",
    "markov_rank": "of a Markov head",
    "short_until": "share of the run with short blocks",
    "gamma": "slot k weighs exp(-k / gamma)",
    "loss_slots": "slots drawn per block for the loss",
    "vocab": "size of the drafting vocabulary: the most frequent output ids",
    "samples": "sequences per step and process",
    "anchors": "anchors per sequence",
    "base_decay": "share of a joint run over which the base loss fades out",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option per field."""
    for field in fields(TrainSettings):
        option, help_text = (
            "--" + field.name.replace("_", "-"),
            HELP.get(field.name, "") + " (default: %(default)s)",
        )
        if field.name == "taps":
            parser.add_argument(
                option, type=int, nargs="+", default=list(TrainSettings.taps), help=help_text
            )
        else:
            parser.add_argument(
                option, type=type(field.default), default=field.default, help=help_text
            )


def from_arguments(args: argparse.Namespace) -> TrainSettings:
    """The settings of parsed options."""
    values = {field.name: getattr(args, field.name) for field in fields(TrainSettings)}
    return TrainSettings(**{**values, "taps": tuple(values["taps"])})


def from_json(stored: dict[str, Any]) -> TrainSettings:
    """The settings of a checkpoint; what it is too old to know has its default. Raises
    InputError.
    """
    try:
        return TrainSettings(**{**stored, "taps": tuple(stored["taps"])})
    except (TypeError, KeyError) as error:
        raise InputError(
            f"settings that this version does not know ({first_line(error)})"
        ) from error


def to_json(settings: TrainSettings) -> dict:
    """Plain values for checkpoints and cards."""
    return {
        k: list(v) if isinstance(v, tuple) else str(v) if isinstance(v, Path) else v
        for k, v in asdict(settings).items()
    }
