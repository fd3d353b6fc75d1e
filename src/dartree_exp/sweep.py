"""The end of a sweep: one comparison of what is done, then every failure with its message."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dartree_exp.errors import UserError
from dartree_exp.outcomes import (
    BUSY,
    DONE,
    FAILED,
    INTERRUPTED,
    SKIPPED,
    WORDS,
    Outcome,
    Plan,
    invocation_folder,
    note_plan,
    read_outcomes,
)


class SweepFolder(Callback):
    """Remembers the folder of the sweep in the process that started it, where `finish` looks for it; notes the plan."""

    path: Path | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepFolder.path = Path(config.hydra.sweep.dir)
        plan = Plan(planned_points(config))
        note_plan(plan, SweepFolder.path)
        points = "" if plan.points is None else f", {plan.points} points"
        print(f"sweep {SweepFolder.path}{points}; watch it: python -m dartree_exp.watch {SweepFolder.path}", flush=True)


def planned_points(config: DictConfig) -> int | None:
    """How many points Hydra's sweeper will start; None where it cannot be told beforehand."""
    sweeper = config.hydra.sweeper
    if "n_trials" in sweeper:
        return int(sweeper.n_trials)
    params = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    values = {}  # by key: the command line stands behind an experiment's own values, and wins
    for override in OverridesParser.create().parse_overrides([*params, *config.hydra.overrides.task]):
        if override.is_sweep_override() and not override.is_choice_sweep() and not override.is_range_sweep():
            return None
        swept = override.is_sweep_override()
        values[override.get_key_element()] = sum(1 for _ in override.sweep_iterator()) if swept else 1
    return math.prod(values.values())


def finish(interrupted: int | None) -> int:
    """Report on the sweep of this invocation, if there was one.

    interrupted: the exit status of an interrupt, None where there was none. Returns the exit status.
    """
    folder, SweepFolder.path = SweepFolder.path, None
    if folder is None:
        return interrupted or 0
    outcomes = read_outcomes(invocation_folder(folder))
    shutil.rmtree(invocation_folder(folder), ignore_errors=True)
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
    said = ", ".join(f"{counts[state]} {word}" for state, word in WORDS.items() if counts[state])
    shared = set.intersection(*(set(outcome.overrides) for outcome in outcomes)) if len(outcomes) > 1 else set()
    bad = [outcome for outcome in outcomes if outcome.state not in (DONE, SKIPPED)]
    return [
        f"sweep {folder}: {said or 'no point was started'}",
        *(_bad_line(outcome, shared) for outcome in bad),
    ]


def _bad_line(outcome: Outcome, shared: set[str]) -> str:
    apart = " ".join(text for text in outcome.overrides if text not in shared)
    folder = f" ({outcome.folder})" if outcome.folder else ""
    return f"  {outcome.state} [{outcome.number}] {apart}: {outcome.message or 'no message'}{folder}"


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0: every point is done; 1: one failed or was interrupted; 3: none did, but another process is at one."""
    states = {outcome.state for outcome in outcomes}
    if states & {FAILED, INTERRUPTED}:
        return 1
    return 3 if BUSY in states else 0
