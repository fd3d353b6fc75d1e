"""The end of a sweep: one comparison of what is done, then every failure with its message."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dartree_exp.errors import UserError
from dartree_exp.launch import BUSY, DONE, FAILED, INTERRUPTED, SKIPPED, Outcome, outcomes_folder, read_outcomes

_STATES = (DONE, SKIPPED, FAILED, INTERRUPTED, BUSY)
_WORDS = {DONE: "done", SKIPPED: "done before", FAILED: "failed", INTERRUPTED: "interrupted", BUSY: "in other hands"}


class SweepFolder(Callback):
    """Remembers the folder of the sweep in the process that started it, where `finish` looks for it."""

    path: Path | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepFolder.path = Path(config.hydra.sweep.dir)
        print(f"sweep {SweepFolder.path}", flush=True)


def finish(interrupted: int | None) -> int:
    """Report on the sweep of this invocation, if there was one.

    interrupted: the exit status of an interrupt, None where there was none. Returns the exit status.
    """
    folder, SweepFolder.path = SweepFolder.path, None
    if folder is None:
        return interrupted or 0
    outcomes = read_outcomes(folder)
    shutil.rmtree(outcomes_folder(folder), ignore_errors=True)
    _compare(list(dict.fromkeys(Path(o.folder) for o in outcomes if o.state in (DONE, SKIPPED))), folder)
    for line in overview(outcomes, folder):
        print(line, file=sys.stderr)
    return interrupted or exit_status(outcomes)


def _compare(done: Sequence[Path], folder: Path) -> None:
    """Print the comparison and write it into the sweep's folder; what stands against it is said and changes no status."""
    if len(done) < 2:
        return
    from rich.console import Console

    from dartree_exp.report import comparison

    try:
        comparison(done, Console(), output=folder)
    except UserError as error:
        print(f"dartree_exp: no comparison: {error}", file=sys.stderr)


def overview(outcomes: Sequence[Outcome], folder: Path) -> list[str]:
    """Counts by state, then one line for each point that did not end well, by what sets it apart from the others."""
    counts = Counter(outcome.state for outcome in outcomes)
    said = ", ".join(f"{counts[state]} {_WORDS[state]}" for state in _STATES if counts[state])
    shared = set.intersection(*(set(outcome.overrides) for outcome in outcomes)) if len(outcomes) > 1 else set()
    bad = [outcome for outcome in outcomes if outcome.state not in (DONE, SKIPPED)]
    return [
        f"sweep {folder}: {said or 'no point was started'}",
        *(f"  {o.state} [{o.number}] {_apart(o, shared)}: {o.message or 'no message'} ({o.folder})" for o in bad),
    ]


def _apart(outcome: Outcome, shared: set[str]) -> str:
    return " ".join(text for text in outcome.overrides if text not in shared)


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0: every point is done; 1: one failed or was interrupted; 3: none did, but another process is at one."""
    states = {outcome.state for outcome in outcomes}
    if states & {FAILED, INTERRUPTED}:
        return 1
    return 3 if BUSY in states else 0
