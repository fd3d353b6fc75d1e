"""What a tracker is, and the guard that keeps it from ever costing a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dartree_exp.records import RoundRecord, SampleRecord


@dataclass(frozen=True)
class RunInfo:
    """Who a run is: `id` its config hash, `group` its sweep, `job_type` its method, `folder` where
    its records lie.
    """

    id: str
    name: str
    group: str
    job_type: str
    folder: Path


class Tracker(Protocol):
    """A mirror of the record. It may lose everything: the run folder is what counts."""

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Begin the run."""

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Mirror one sample and its rounds, after they are on disk."""

    def log_row(self, row: Mapping[str, float]) -> None:
        """Mirror one line of a training's curve; its place is `train/index`."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """End the run with its summary.json, or None where it has none because it failed."""


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
    """A tracker whose failures are said once and end the mirroring, never the run.

    Args:
        tracker: the one that may fail.
        say: takes the message.
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
        """End the run, also after a failure: what was mirrored so far may still arrive."""
        self._try("finish", summary)

    def _try(self, name: str, *arguments: object) -> None:
        try:
            getattr(self._tracker, name)(*arguments)
        except (
            Exception
        ) as error:  # whatever a tracker's library raises, the result is on disk already
            if not self._failed:
                kind = f"{type(self._tracker).__name__} stopped at {name}: {type(error).__name__}"
                self._say(
                    f"{kind}: {' '.join(str(error).split())}. The run goes on; its records are "
                    "safe."
                )
            self._failed = True
