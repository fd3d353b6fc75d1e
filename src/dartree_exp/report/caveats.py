"""Caveats of a run's numbers: an unfinished or failed run, invalid times, another clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dartree_exp.records import Run
from dartree_exp.records.environment import overload
from dartree_exp.records.schema import UNJUDGED
from dartree_exp.records.stamps import versions
from dartree_exp.report.footer import SHARED, setting
from dartree_exp.report.table import Cell, lines


def caveats(run: Run) -> list[str]:
    """The caveats of this run's numbers, the most serious first."""
    notes = []
    done, expected = len(run.samples), planned(run)
    message = f": {run.status['message']}" if run.status.get("message") else ""
    # A run prints its table after its last sample, just before it records its state.
    if is_incomplete(run):
        notes.append(f"{done} of {expected} samples, incomplete: {run.lost}")
    elif run.state != "DONE" and not (run.state == "RUNNING" and done == expected):
        notes.append(
            f"{run.state}, "
            + (f"{done} of {expected} samples" if expected else f"{done} samples")
            + message
        )
    if problem := load_problem(run.environment):
        notes.append(problem)
    if run.environment.get("earlier"):
        notes.append("resumed on another machine or with other versions: times are mixed")
        if parts := versions(run.environment, done):
            notes.append(f"made by several versions of the code: {'; '.join(parts)}")
    if setting(run.config, "protocol") == "paper":
        notes.append(
            "protocol=paper: the first draft of every answer is left out of the decode time, as in "
            "the papers"
        )
    if shared_baseline(run):
        notes.append(
            "baseline=shared: plain decoding was timed once per prompt for the whole sweep, not "
            "beside this method"
        )
    if unsynchronised(run):
        notes.append(
            "stages were timed without synchronising the device (engine.profile=false): shares "
            "include queuing"
        )
    if any(sample.exact and sample.verdict == UNJUDGED for sample in run.samples):
        notes.append(
            "ids differ from plain decoding's by design and are not judged: the verifier draws its "
            "own tokens from the target's law, which is tested statistically; times are compared "
            "per emitted token"
        )
    if any(not sample.exact for sample in run.samples):
        notes.append("LOSSY: the acceptance rule does not preserve the target's distribution")
    return notes


def of_all(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The caveats of several runs, each once, with the names of its runs."""
    holders: dict[str, list[str]] = {}
    for name, run in zip(names, runs, strict=True):
        for caveat in caveats(run):
            holders.setdefault(caveat, []).append(name)
    return [
        c if len(held) == len(runs) else f"{', '.join(held)}: {c}" for c, held in holders.items()
    ]


def load_problem(environment: Mapping[str, Any]) -> str | None:
    """`times not valid: load 7 on 2 cores` if the load average was above the number of cores at
    start or end, else None.

    `load` is {start, end, cores} with load averages of one minute; older records have the three
    averages at the start.
    """
    for stamp in (environment, *environment.get("earlier", ())):
        load = stamp.get("load")
        if isinstance(load, list):
            load = {"start": load[0] if load else None, "cores": setting(stamp, "cpu.cores")}
        if found := overload(load):
            return f"times not valid: {found}"
    return None


def timed(run: Run, cell: Cell) -> Cell:
    """A cell of times, marked if they are not valid, with the reason in the CSV."""
    problem = load_problem(run.environment)
    marked = replace(cell, values={**cell.values, "times": problem or ""})
    return lines(marked, "not valid") if problem else marked


def planned(run: Run) -> int | None:
    """Samples of the finished run; None if not recorded."""
    expected = run.status.get("prompts")
    return expected if isinstance(expected, int) else None


def is_incomplete(run: Run) -> bool:
    """Whether records of a finished run are missing."""
    return bool(run.lost)


def is_result(run: Run) -> bool:
    """Whether the run is done, with all of its samples and no wrong output."""
    return run.state == "DONE" and not any(s.verdict == "wrong" for s in run.samples)


def shared_baseline(run: Run) -> bool:
    """Whether plain decoding was timed once for a sweep, not beside this run."""
    return setting(run.config, "baseline") == SHARED


def unsynchronised(run: Run) -> bool:
    """Whether stages on a GPU were timed without synchronising it."""
    return not str(run.environment.get("device", "cpu")).startswith("cpu") and not setting(
        run.config, "engine.profile"
    )


def failures(run: Run, most: int = 5) -> list[str]:
    """A note for each failed sample, wrong verdict and fallback, the first few of each."""
    notes: list[str] = []
    groups: Sequence[tuple[str, list[str]]] = (
        (
            "failed",
            [
                f"{s.id} turn {s.turn}: {_message(s.error)}"
                for s in run.samples
                if s.error is not None
            ],
        ),
        (
            "WRONG",
            [
                f"{s.id} turn {s.turn}: {s.verdict_detail}"
                for s in run.samples
                if s.verdict == "wrong"
            ],
        ),
        (
            "decoded by AR",
            [f"{s.id} turn {s.turn}: {s.fallback}" for s in run.samples if s.fallback is not None],
        ),
    )
    for name, found in groups:
        notes += [f"{name}: {line}" for line in found[:most]]
        if len(found) > most:
            notes.append(f"{name}: and {len(found) - most} more")
    return notes


def _message(error: Mapping[str, Any] | None) -> str:
    error = error or {}
    return str(error.get("message") or error.get("type") or error)
