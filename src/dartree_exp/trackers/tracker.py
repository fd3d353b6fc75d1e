"""The tracker interface, and a guard against its failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dartree_exp.records import RoundRecord, SampleRecord


@dataclass(frozen=True)
class RunInfo:
    """A run for a tracker. id: config hash, group: sweep, job_type: method, folder: run folder."""

    id: str
    name: str
    group: str
    job_type: str
    folder: Path


class Tracker(Protocol):
    """A mirror of the records. Only the run folder is authoritative."""

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Begin the run."""

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Mirror one sample and its rounds, after they are on disk."""

    def log_row(self, row: Mapping[str, float]) -> None:
        """Mirror one line of a training's curve; its index is `train/index`."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """End the run with its summary.json, or None if the run failed."""


class NoTracker:
    """The run folder is the only record."""

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Nothing to do."""

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Nothing to do."""

    def log_row(self, row: Mapping[str, float]) -> None:
        """Nothing to do."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Nothing to do."""


class Guarded:
    """A tracker whose first failure is reported and ends the mirroring, but not the run.

    Args:
        tracker: the tracker that may fail.
        say: gets the message.
    """

    def __init__(self, tracker: Tracker, say: Callable[[str], None]) -> None:
        self._tracker, self._say = tracker, say
        self._failed = False

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Begin the run."""
        self._try("start", config, info)

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Mirror one sample, unless something failed before."""
        if not self._failed:
            self._try("log_sample", sample, rounds)

    def log_row(self, row: Mapping[str, float]) -> None:
        """Mirror one line, unless something failed before."""
        if not self._failed:
            self._try("log_row", row)

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """End the run, also after a failure: earlier data may still be uploaded."""
        self._try("finish", summary)

    def _try(self, name: str, *arguments: object) -> None:
        try:
            getattr(self._tracker, name)(*arguments)
        except Exception as error:  # the records are on disk, whatever the library raises
            if not self._failed:
                kind = f"{type(self._tracker).__name__} stopped at {name}: {type(error).__name__}"
                self._say(
                    f"{kind}: {' '.join(str(error).split())}. The run continues; its records are "
                    "safe."
                )
            self._failed = True
