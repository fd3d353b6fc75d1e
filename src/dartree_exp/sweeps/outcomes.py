"""The outcomes of a sweep's points: small files in the sweep's folder, written by the process that
ran a point.

Each invocation of the command line has a folder `.outcomes/<id>/`; its worker processes read the id
from the environment. The folder is deleted after the invocation has reported.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dartree_exp.errors import UserError
from dartree_exp.records.atomic import explained, is_alive, remove_temporaries
from dartree_exp.records.baseline import FOLDER as BASELINES
from dartree_exp.records.files import read_json, write_json

SWEEP_ID = "DARTREE_EXP_SWEEP"
"""Environment variable with the id of the invocation, for worker processes."""

DONE, SKIPPED, FAILED = "DONE", "SKIPPED", "FAILED"
INTERRUPTED, BUSY, NOT_STARTED = "INTERRUPTED", "BUSY", "NOT STARTED"
WORDS = {
    DONE: "done",
    SKIPPED: "done before",
    FAILED: "failed",
    INTERRUPTED: "interrupted",
    BUSY: "locked by another process",
    NOT_STARTED: "not started",
}
"""The states in the order of a progress line, with their words in it."""

_FOLDER, _PLAN = ".outcomes", "plan"
_STALE = 3600.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """The outcome of one point: its index in the sweep, overrides, state and folder; the reason if
    it failed.
    """

    number: int
    overrides: list[str]
    state: str
    folder: str
    message: str = ""


@dataclass(frozen=True)
class Plan:
    """The plan of an invocation: its number of points (None: unknown), start time, process and
    host.

    runs: the overrides in which each point differs, by the name of its run folder; {} for a search.
    """

    points: int | None
    runs: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)

    def is_alive(self) -> bool:
        """Whether its process is alive; a process on another machine is assumed to be."""
        return self.host != socket.gethostname() or is_alive(self.pid)


def new_sweep_id() -> str:
    """An id that sorts by time and differs for sweeps started in the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def sweep_id() -> str:
    """The id of this invocation."""
    return os.environ.setdefault(SWEEP_ID, new_sweep_id())


def invocation_folder(sweep_dir: Path) -> Path:
    """The folder of this invocation's outcomes, the same in all its processes."""
    return sweep_dir / _FOLDER / sweep_id()


def invocations(sweep_dir: Path) -> list[Path]:
    """The folders of a sweep's invocations, oldest first, including those of killed processes."""
    return sorted((sweep_dir / _FOLDER).glob("*"))


def note(outcome: Outcome, sweep_dir: Path) -> None:
    """Record the outcome of a point."""
    _write(sweep_dir, str(outcome.number), asdict(outcome))


def note_plan(plan: Plan, sweep_dir: Path) -> None:
    """Record the plan of this invocation."""
    _write(sweep_dir, _PLAN, asdict(plan))


def read_outcomes(invocation: Path) -> list[Outcome]:
    """The outcomes of an invocation so far, in the order of the sweep."""
    found = (Outcome(**read_json(file)) for file in invocation.glob("*.json") if file.stem != _PLAN)
    return sorted(found, key=lambda outcome: outcome.number)


def read_plan(invocation: Path) -> Plan | None:
    """The plan of an invocation; None if there is none."""
    file = invocation / f"{_PLAN}.json"
    return Plan(**read_json(file)) if file.exists() else None


def clean(sweep_dir: Path) -> None:
    """Remove the files that killed processes left in a sweep's folder, except their runs, which can
    be resumed.
    """
    for invocation in invocations(sweep_dir):
        with suppress(UserError, OSError):
            plan = read_plan(invocation)
            # A worker that outlived its sweep writes into a folder without a plan.
            left = (
                time.time() - invocation.stat().st_mtime > _STALE
                if plan is None
                else not plan.is_alive()
            )
            if left:
                shutil.rmtree(invocation, ignore_errors=True)
    with suppress(OSError):  # does not exist, or is in use
        (sweep_dir / _FOLDER).rmdir()
    for folder in (sweep_dir, *(sweep_dir / BASELINES).glob("*")):
        with suppress(OSError):
            remove_temporaries(folder)


def _write(sweep_dir: Path, name: str, value: object) -> None:
    folder = invocation_folder(sweep_dir)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", value)
