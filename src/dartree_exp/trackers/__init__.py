"""Mirrors of the record: Weights & Biases, TensorBoard, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from dartree_exp.config.identity import config_hash
from dartree_exp.config.schema import Config
from dartree_exp.records import Run
from dartree_exp.trackers.tensorboard_tracker import TensorboardTracker
from dartree_exp.trackers.tracker import Guarded, NoTracker, RunInfo, Tracker
from dartree_exp.trackers.wandb_tracker import WandbTracker


def make_tracker(config: Config, folder: Path, say: Callable[[str], None] | None = None) -> Tracker:
    """The tracker that `config.tracker` asks for, started, with the samples that a resumed run
    already has.

    Args:
        folder: the run folder, opened; its parent's name is the group.
        say: takes notices (a failure of the tracker, how to upload); None prints them to stderr.
    """
    say = say or _to_stderr
    if config.tracker.name == "none":
        return NoTracker()
    made = (
        TensorboardTracker()
        if config.tracker.name == "tensorboard"
        else WandbTracker(config.tracker, say)
    )
    tracker = Guarded(made, say)
    method = str(config.method)
    info = RunInfo(
        config_hash(config), f"{method} {folder.name}", folder.parent.name, method, folder
    )
    tracker.start(asdict(config), info)
    # A resumed run mirrors itself whole: the server would keep two halves under one id as two runs.
    run = Run(folder)
    for sample in run.samples:
        tracker.log_sample(sample, [r for r in run.rounds if r.sample_key == sample.key])
    return tracker


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr)


__all__ = [
    "Guarded",
    "NoTracker",
    "RunInfo",
    "TensorboardTracker",
    "Tracker",
    "WandbTracker",
    "make_tracker",
]
