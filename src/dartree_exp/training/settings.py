"""What follows from a training's settings, and how they are kept in checkpoints and cards."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dartree_exp.config.training import ON_POLICY, TrainingConfig
from dartree_exp.drafters.heads.config import fresh
from dartree_exp.training.errors import InputError, first_line

_OF_A_RUN = ("init", "steps", "minutes", "validate_every", "save_every")
"""Settings that say where a run starts and ends, not what is trained: not kept."""
_BEFORE = {
    "family": "dflash",
    "head": "gru",
    "markov_rank": 64,
    "swiglu_width": 512,
    "latents": 8,
    "latent_rank": 64,
    "latent_prior": "slot",
    "causal": False,
    "ce": 1.0,
    "l1": 0.0,
    "kl": 0.0,
    "rkl": 0.0,
    "rkl_clip": 0.01,
    "rkl_temperature": 1.0,
    "accept": 0.0,
    "accept_form": "log",
    "accept_threshold": 0.0,
    "length_width": 0,
    "length_loss": "mse",
    "length_lr": 0.0002,
    "prefit_steps": 0,
    "buffer": 128,
    "passes": 2,
    "cap": 192,
    "draw_temperature": 0.0,
    "schedule": "linear",
    "confidence_gradient": "head",
}
"""What settings were before they were recorded."""


def block_at(s: TrainingConfig, progress: float) -> int:
    """Slots per block at this share of the training."""
    return s.short_block if progress < s.short_until else s.block


def lr_at(s: TrainingConfig, progress: float, step: int, peak: float) -> float:
    """Linear warm-up over steps, times linear or cosine decay to zero over the progress in 0..1."""
    left = max(0.0, 1.0 - progress)
    decay = left if s.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2
    return peak * min(1.0, (step + 1) / s.warmup_steps) * decay


def base_share(s: TrainingConfig, progress: float) -> float:
    """Weight of the base loss: 1 for a backbone alone, 0 for the head, from 1 linearly to 0 when
    trained jointly.
    """
    if s.stage != "joint":
        return float(not corrects(s.stage))
    return max(0.0, 1.0 - progress / s.base_decay) if s.base_decay > 0 else 0.0


def corrects(stage: str) -> bool:
    """Whether a stage trains a correction head."""
    return stage not in ("backbone", ON_POLICY)


def first_slot(s: TrainingConfig) -> int:
    """First slot with loss: a head alone cannot change the slots before its prefix."""
    return fresh(s.head, s).pure_draft_prefix_len if s.stage == "head" else 0


def to_json(s: TrainingConfig, taps: tuple[int, ...]) -> dict[str, Any]:
    """Plain values for checkpoints and cards, with the layers whose features were read."""
    plain = {key: value for key, value in asdict(s).items() if key not in _OF_A_RUN}
    return {**plain, "taps": list(taps)}


def from_json(stored: dict[str, Any]) -> tuple[TrainingConfig, tuple[int, ...]]:
    """What `to_json` wrote, also by an older version. Raises InputError."""
    try:
        values = {**_BEFORE, **stored}
        taps = tuple(values.pop("taps"))
        run: dict[str, Any] = dict.fromkeys(_OF_A_RUN)
        return TrainingConfig(**run, **values), taps
    except (TypeError, KeyError) as error:
        raise InputError(
            f"settings that this version does not know ({first_line(error)})"
        ) from error
