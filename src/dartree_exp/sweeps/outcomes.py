"""How the points of a sweep ended: small files in the sweep's folder, left by whichever process ran
a point.

One invocation of the command line is one folder `.outcomes/<id>/`; its worker processes learn the
id from the environment. It is gone when the invocation has reported, so what stays in a sweep's
folder are runs.
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
"""Environment variable that names the invocation, so that worker processes agree on it."""

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
"""The states in the order in which they are counted, and how a line calls them."""

_FOLDER, _PLAN = ".outcomes", "plan"
_STALE = 3600.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """How one point ended: its place in the sweep, its overrides, its folder, and why where it did
    not end well.
    """

    number: int
    overrides: list[str]
    state: str
    folder: str
    message: str = ""


@dataclass(frozen=True)
class Plan:
    """What an invocation set out to do: its number of points (None: not known beforehand), since
    when, and who it is.

    runs: what sets each point apart from the others, by the name of its run folder; {} for a
    search.
    """

    points: int | None
    runs: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)

    def is_alive(self) -> bool:
        """Whether its process is still there; a process of another machine is taken to be."""
        return self.host != socket.gethostname() or is_alive(self.pid)


def new_sweep_id() -> str:
    """Sortable by time, and different for two sweeps started in the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def sweep_id() -> str:
    """The id of this invocation."""
    return os.environ.setdefault(SWEEP_ID, new_sweep_id())


def invocation_folder(sweep_dir: Path) -> Path:
    """Where the points of this invocation leave how they ended, whichever process runs them."""
    return sweep_dir / _FOLDER / sweep_id()


def invocations(sweep_dir: Path) -> list[Path]:
    """The invocations that work in a sweep's folder, oldest first, and those that a kill left
    behind.
    """
    return sorted((sweep_dir / _FOLDER).glob("*"))


def note(outcome: Outcome, sweep_dir: Path) -> None:
    """Leave how a point ended."""
    _write(sweep_dir, str(outcome.number), asdict(outcome))


def note_plan(plan: Plan, sweep_dir: Path) -> None:
    """Leave what this invocation sets out to do."""
    _write(sweep_dir, _PLAN, asdict(plan))


def read_outcomes(invocation: Path) -> list[Outcome]:
    """How the points of an invocation ended so far, in the order of the sweep."""
    found = (Outcome(**read_json(file)) for file in invocation.glob("*.json") if file.stem != _PLAN)
    return sorted(found, key=lambda outcome: outcome.number)


def read_plan(invocation: Path) -> Plan | None:
    """What an invocation set out to do, where that was noted."""
    file = invocation / f"{_PLAN}.json"
    return Plan(**read_json(file)) if file.exists() else None


def clean(sweep_dir: Path) -> None:
    """Remove what killed processes left in a sweep's folder besides their runs, which are theirs to
    resume.
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
    with suppress(OSError):  # not there, or in use
        (sweep_dir / _FOLDER).rmdir()
    for folder in (sweep_dir, *(sweep_dir / BASELINES).glob("*")):
        with suppress(OSError):
            remove_temporaries(folder)


def _write(sweep_dir: Path, name: str, value: object) -> None:
    folder = invocation_folder(sweep_dir)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", value)
