"""A small training on the tiny target, as the command line starts it."""

import json
import os
import signal

import pytest

from dartree_exp.train import main
from dartree_exp.training.trainer import Trainer

SMALL = {
    "block": 4, "short_block": 3, "loss_slots": 2, "vocab": 30, "gru_width": 8, "rank": 8,
    "markov_rank": 6, "swiglu_width": 8, "samples": 4, "anchors": 6, "lr": 0.01,
    "warmup_steps": 4, "ema": 0.9, "validate_every": 20, "mask_token_id": 0,
}  # fmt: skip


MIXTURE = {"latents": 3, "latent_rank": 8, "loss_slots": 4, "short_block": 4, "lr": 0.03}
"""Sizes of a latent mixture; its loss needs every slot of a block."""
CAPTURED = ["--taps", "0", "2", "--holdout", "2", "--shard-size", "12"]
"""Options of the capture whose features the trainings here read."""


def overrides(tiny, out, stage="backbone", settings=(), **training):
    """Settings of a training whose run folder is `out`, in a folder `training`."""
    assert out.parent.name == "training"
    return [
        f"model.path={tiny.target}", f"data={tiny.data}", f"features={tiny.features}",
        f"output={out.parent.parent}", f"name={out.name}", f"training={stage}",
        *(f"training.{key}={value}" for key, value in {**SMALL, **training}.items()), *settings,
    ]  # fmt: skip


def run(tiny, out, **options):
    """The curve of a training to its end; options: as `overrides`."""
    assert main(overrides(tiny, out, **options)) == 0
    return [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]


def interrupted(tiny, out, after, **options):
    """Ctrl-C during step number `after`."""
    right = Trainer.step

    def step(self):
        right(self)
        if self.number == after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", step)
        main(overrides(tiny, out, **options))
