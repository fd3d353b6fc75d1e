"""The progress of a sweep, read from the outcomes of its invocation and its run folders."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dartree_exp.console.printable import duration
from dartree_exp.records.layout import SAMPLES, STATUS
from dartree_exp.records.reader import Run
from dartree_exp.records.schema import RecordError
from dartree_exp.sweeps.outcomes import DONE, FAILED, WORDS, read_outcomes, read_plan


@dataclass(frozen=True)
class Progress:
    """All points, ended points by state, running points, points left, and seconds left (None:
    unknown).
    """

    points: int | None
    counts: Counter[str]
    running: int
    left: int | None
    seconds: float | None

    def line(self) -> str:
        """One line: `[5/12] 3 done, 2 failed, 1 running, 6 left, about 0:02:10 to go`."""
        ended = sum(self.counts.values())
        parts = [
            f"{self.counts[state]} {word}" for state, word in WORDS.items() if self.counts[state]
        ]
        parts += [f"{self.running} running"] * bool(self.running) + [f"{self.left} left"] * bool(
            self.left
        )
        parts += (
            [f"about {duration(self.seconds)} to go"]
            if self.seconds and (self.running or self.left)
            else []
        )
        return f"[{ended}/{self.points or '?'}] {', '.join(parts) or 'nothing has ended yet'}"


def progress(invocation: Path, now: float | None = None) -> Progress:
    """The progress of an invocation. The time left assumes that points take as long as the finished
    ones did on average.
    """
    plan, outcomes = read_plan(invocation), read_outcomes(invocation)
    counts = Counter(outcome.state for outcome in outcomes)
    shares = [share_done(run) for run in running_runs(invocation.parents[1])]
    if plan is None or plan.points is None:
        return Progress(None, counts, len(shares), None, None)
    unfinished = max(0, plan.points - len(outcomes))
    worked = counts[DONE] + counts[FAILED] + sum(shares)
    elapsed = (time.time() if now is None else now) - plan.started
    seconds = elapsed / worked * max(0.0, unfinished - sum(shares)) if worked else None
    return Progress(plan.points, counts, len(shares), max(0, unfinished - len(shares)), seconds)


def running_runs(sweep_dir: Path) -> list[Run]:
    """The runs of a sweep that are running now, without those whose status cannot be read."""
    return [
        run
        for run in map(Run, sorted(s.parent for s in sweep_dir.glob(f"*/{STATUS}")))
        if _is_running(run)
    ]


def _is_running(run: Run) -> bool:
    try:
        return run.state == "RUNNING"
    except RecordError:
        return False


def share_done(run: Run) -> float:
    """Share of a run's samples that are on disk."""
    return min(1.0, samples_on_disk(run) / (run.status.get("prompts") or 1))


def samples_on_disk(run: Run) -> int:
    """The number of recorded samples; counts lines without parsing, because runs are being
    timed.
    """
    file = run.path / SAMPLES
    return file.read_bytes().count(b"\n") if file.is_file() else 0
