"""Read-only access to run folders, for reports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dartree_exp.records.files import iter_lines, read_object
from dartree_exp.records.layout import (
    CONFIG,
    CURVE,
    ENVIRONMENT,
    LOCK,
    ROUNDS,
    SAMPLES,
    STATUS,
    SUMMARY,
    TREES,
    check_config,
    check_environment,
    check_status,
    losses,
)
from dartree_exp.records.lock import is_locked
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord, read_samples
from dartree_exp.records.trees import TreeRecord


@dataclass(frozen=True)
class Run:
    """A run folder on disk, finished or not. Files are read on first access."""

    path: Path

    def __post_init__(self) -> None:
        if not is_run_folder(self.path):
            raise RecordError(f"{self.path} is not a run folder: it has no {STATUS}")

    @cached_property
    def status(self) -> dict[str, Any]:
        """status.json."""
        return check_status(read_object(self.path / STATUS), self.path / STATUS)

    @cached_property
    def state(self) -> str:
        """RUNNING, DONE, FAILED or INTERRUPTED.

        INTERRUPTED also if the recorded state is RUNNING but no process holds the lock, or DONE but
        records have been lost since; rerunning the command completes it.
        """
        state = self.status["state"]
        gone = state == "RUNNING" and not is_locked(self.path / LOCK)
        return "INTERRUPTED" if gone or self.lost else state

    @cached_property
    def lost(self) -> str:
        """The files that a finished run has lost since, "" if none."""
        return losses(self.path, self.status) if self.status["state"] == "DONE" else ""

    @cached_property
    def unreadable(self) -> str:
        """Why this run cannot be reported, "" if it can."""
        try:
            _ = (
                self.state,
                self.config,
                self.environment,
                self.summary,
                self.samples,
                self.rounds,
                self.trees,
            )
        except RecordError as error:
            return str(error) if str(self.path) in str(error) else f"{self.path}: {error}"
        return ""

    @cached_property
    def samples(self) -> list[SampleRecord]:
        """Complete lines of samples.jsonl."""
        return list(read_samples(iter_lines(self.path / SAMPLES)))

    @cached_property
    def rounds(self) -> list[RoundRecord]:
        """Rounds of the complete samples."""
        finished = {sample.key for sample in self.samples}
        rounds = (RoundRecord.from_dict(line) for line in iter_lines(self.path / ROUNDS))
        return [r for r in rounds if r.sample_key in finished and _valid(r)]

    @cached_property
    def trees(self) -> list[TreeRecord]:
        """Recorded trees of the complete samples, in the order of rounds."""
        finished = {sample.key for sample in self.samples}
        trees = (TreeRecord.from_dict(line) for line in iter_lines(self.path / TREES))
        return [t for t in trees if t.sample_key in finished and _valid(t)]

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml as plain dicts and lists."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        try:
            config = OmegaConf.to_container(OmegaConf.load(self.path / CONFIG), resolve=True)
        except RecursionError:
            raise RecordError(f"{self.path / CONFIG}: nested too deeply") from None
        except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
            raise RecordError(f"{self.path / CONFIG}: {' '.join(str(error).split())}") from error
        return check_config(config, self.path / CONFIG)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """environment.json, or {} if the run ended before writing it."""
        file = self.path / ENVIRONMENT
        return check_environment(read_object(file), file) if file.exists() else {}

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """summary.json, or None if there is none."""
        file = self.path / SUMMARY
        return read_object(file) if file.exists() else None


def is_run_folder(path: Path) -> bool:
    """Whether a run was ever opened in this folder."""
    return os.path.lexists(path / STATUS)


def is_training(path: Path) -> bool:
    """Whether the run in this folder trains a drafter instead of decoding prompts."""
    try:
        return "training:" in (path / CONFIG).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):  # reported when the run is read
        return False


def is_done(path: Path) -> bool:
    """Whether the run in this folder is done and complete; False if it cannot be read."""
    try:
        return is_run_folder(path) and Run(path).state == "DONE"
    except RecordError:
        return False


def find_runs(path: Path) -> list[Run]:
    """The run folder `path`, or all run folders below it, sorted by path, without trainings. Raises
    RecordError if there are none.
    """
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder")
    if is_run_folder(path):
        if is_training(path):
            raise RecordError(f"{path} is a training, not a run: its numbers are in {CURVE}")
        return [Run(path)]
    folders = [status.parent for status in sorted(path.rglob(STATUS))]
    runs = [Run(folder) for folder in folders if not is_training(folder)]
    if not runs:
        raise RecordError(f"{path} holds no run: no {STATUS} in it or below")
    return runs


def _valid(record: RoundRecord | TreeRecord) -> bool:
    """True. Raises RecordError for a record that contradicts itself."""
    record.validate()
    return True
