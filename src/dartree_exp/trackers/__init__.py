"""Mirrors of the records: Weights & Biases, TensorBoard, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dartree_exp.config.identity import config_hash
from dartree_exp.config.schema import Config, TrackerConfig
from dartree_exp.records import Run
from dartree_exp.trackers.tensorboard_tracker import TensorboardTracker
from dartree_exp.trackers.tracker import Guarded, NoTracker, RunInfo, Tracker
from dartree_exp.trackers.wandb_tracker import WandbTracker


def make_tracker(config: Config, folder: Path, say: Callable[[str], None] | None = None) -> Tracker:
    """The tracker of `config.tracker`, started, with the samples that a resumed run already has.

    Args:
        folder: the run folder, opened; its parent's name is the group.
        say: gets messages (a failure of the tracker, how to upload); None prints them to stderr.
    """
    method = str(config.method)
    info = RunInfo(
        config_hash(config), f"{method} {folder.name}", folder.parent.name, method, folder
    )
    tracker = start_tracker(config.tracker, asdict(config), info, say)
    if isinstance(tracker, NoTracker):
        return tracker
    # A resumed run is mirrored completely: a tracker's server would keep its parts as two runs.
    run = Run(folder)
    for sample in run.samples:
        tracker.log_sample(sample, [r for r in run.rounds if r.sample_key == sample.key])
    return tracker


def start_tracker(
    config: TrackerConfig,
    settings: Mapping[str, Any],
    info: RunInfo,
    say: Callable[[str], None] | None = None,
) -> Tracker:
    """The tracker of `config`, started. settings: of the run. say: as in `make_tracker`."""
    say = say or _to_stderr
    if config.name == "none":
        return NoTracker()
    made = TensorboardTracker() if config.name == "tensorboard" else WandbTracker(config, say)
    tracker = Guarded(made, say)
    tracker.start(settings, info)
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
    "start_tracker",
]
