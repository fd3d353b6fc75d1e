"""The start of a sweep (check all points before the first one runs) and its end (a comparison and
all failures).
"""

from __future__ import annotations

import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from dartree_exp.config.composition import COMPOSITION_ERRORS, explain, one_line
from dartree_exp.config.hydra_settings import composed_refusal
from dartree_exp.config.identity import config_hash
from dartree_exp.console.printable import printable, printable_line
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.sweeps.estimate import estimate
from dartree_exp.sweeps.outcomes import (
    BUSY,
    DONE,
    FAILED,
    INTERRUPTED,
    SKIPPED,
    WORDS,
    Outcome,
    Plan,
    clean,
    invocation_folder,
    note_plan,
    read_outcomes,
)
from dartree_exp.sweeps.points import (
    Planned,
    Point,
    all_points,
    apart,
    shared_by,
    sweep_folder_of,
    task_overrides,
)

_SUBMITITS_LOGS = ".submitit"
_HYDRAS_RECORD = "multirun.yaml"
"""Hydra's sweeper writes the settings here, with this machine's paths; it is deleted at the end."""


class SweepFolder(Callback):
    """Checks every point before the first one starts, and stores the sweep's folder for
    `finish`.
    """

    path: Path | None = None
    points = 0

    def on_run_start(self, config: DictConfig, **kwargs: object) -> None:
        """Exit with status 2 if a file sets a setting of Hydra that is not allowed."""
        _check_hydra(config)

    def on_multirun_start(self, config: DictConfig, **kwargs: object) -> None:
        """Exit with status 2, without writing anything, if a point is invalid, unless
        `sweep.check=false`.

        Hydra turns exceptions of a callback into warnings, except SystemExit.
        """
        _check_hydra(config)
        try:
            folder = sweep_folder_of(config)
            planned = all_points(config, folder)
            refused = [point for point in planned.points if point.config is None]
            if refused and (
                config.sweep.check is not False or not all(point.composed for point in refused)
            ):
                raise ConfigError(*_refusals(refused, planned.points))
            begin(folder, planned)
        except COMPOSITION_ERRORS as error:
            _exit(2, explain(error, task_overrides(config.hydra)))
        except ConfigError as error:
            _exit(2, str(error))
        except (UserError, OSError) as error:
            _exit(1, str(error))
        except Exception as error:
            traceback.print_exc()
            _exit(1, f"{type(error).__name__}: {error}")
        SweepFolder.path, SweepFolder.points = folder, planned.count


def _check_hydra(config: DictConfig) -> None:
    refusal = composed_refusal(config)
    if refusal is not None:
        _exit(2, refusal)


def begin(folder: Path, planned: Planned) -> None:
    """Clean up after dead processes, record the plan, and print the estimated work."""
    clean(folder)
    note_plan(Plan(planned.count, {} if planned.search else _labels(planned.points)), folder)
    print(
        f"sweep {folder}, {planned.count} points; watch it: python -m dartree_exp.watch {folder}",
        flush=True,
    )
    configs = [point.config for point in planned.points if point.config is not None]
    for line in (
        estimate(configs[:1], folder, planned.count)
        if planned.search
        else estimate(configs, folder)
    ):
        print(f"  {line}", flush=True)


def _labels(points: Sequence[Point]) -> dict[str, str]:
    """The overrides in which each point differs, by the name of its run folder; points that share a
    folder are the same run.
    """
    shared = shared_by([point.overrides for point in points])
    return {
        config_hash(p.config): apart(p.overrides, shared)
        for p in reversed(points)
        if p.config is not None
    }


def _refusals(refused: Sequence[Point], points: Sequence[Point]) -> list[str]:
    """One line for each refused point, or one line if all are refused for the same reason."""
    reasons = {point.refusal for point in refused}
    if len(refused) == len(points) and len(reasons) == 1:
        return [reasons.pop()]
    shared = shared_by([point.overrides for point in points])
    return [
        f"{len(refused)} of {len(points)} points cannot work; nothing was started "
        "(sweep.check=false runs the others):",
        *(
            f"  [{point.number}] {apart(point.overrides, shared)}: {point.refusal}"
            for point in refused
        ),
    ]


def _exit(status: int, message: str) -> None:
    print(f"dartree_exp: {printable(message)}", file=sys.stderr)
    raise SystemExit(status)


def finish(interrupted: int | None = None, broken: BaseException | None = None) -> int:
    """Report on the sweep of this invocation, if there was one, and delete everything but runs and
    tables from its folder.

    interrupted: the exit status of an interrupt, or None. broken: the error that ended the
    launcher; its jobs may still run, so their folder of outcomes is kept. Returns the exit status.
    """
    folder, SweepFolder.path = SweepFolder.path, None
    if folder is None:
        return interrupted or 0
    logs = folder / _SUBMITITS_LOGS
    if broken is not None:
        print(f"dartree_exp: {printable_line(_launcher_error(broken, logs))}", file=sys.stderr)
    try:
        outcomes = read_outcomes(invocation_folder(folder))
    except UserError as error:
        print(f"dartree_exp: {error}", file=sys.stderr)
        outcomes = []
    missing = max(0, SweepFolder.points - len(outcomes))
    if broken is None or not logs.exists():
        shutil.rmtree(invocation_folder(folder), ignore_errors=True)
    with suppress(OSError):
        (folder / _HYDRAS_RECORD).unlink()
    clean(folder)
    with suppress(OSError):  # a launcher that started nothing leaves an empty folder
        folder.rmdir()
    _compare(
        list(dict.fromkeys(Path(o.folder) for o in outcomes if o.state in (DONE, SKIPPED))), folder
    )
    for line in overview(outcomes, folder, 0 if interrupted else missing):
        print(printable(line), file=sys.stderr)
    return interrupted or exit_status(outcomes, missing + (broken is not None))


def _launcher_error(error: BaseException, logs: Path) -> str:
    """One line: submitit's own messages are whole logs, with their paths."""
    if type(error).__module__.partition(".")[0] != "submitit":
        return f"the launcher failed: {one_line(error)}"
    return (
        f"a job ended without a result ({type(error).__name__}; logs in {logs}); other jobs "
        "continue; rerun the same command to resume"
    )


def _compare(done: Sequence[Path], folder: Path) -> None:
    """Print the comparison and write it to the sweep's folder; an error is printed and does not
    change the exit status.
    """
    if len(done) < 2:
        return
    from rich.console import Console

    from dartree_exp.report import comparison

    try:
        comparison(done, Console(), output=folder)
    except UserError as error:
        print(f"dartree_exp: no comparison: {printable_line(error)}", file=sys.stderr)


def overview(outcomes: Sequence[Outcome], folder: Path, missing: int = 0) -> list[str]:
    """Counts by state, then one line for each point that is not done.

    missing: points of the plan without an outcome.
    """
    counts = Counter(outcome.state for outcome in outcomes)
    said = [f"{counts[state]} {word}" for state, word in WORDS.items() if counts[state]]
    said += [f"{missing} without a result"] if missing else []
    shared = shared_by([outcome.overrides for outcome in outcomes])
    bad = [outcome for outcome in outcomes if outcome.state not in (DONE, SKIPPED)]
    return [
        f"sweep {folder}: {', '.join(said) or 'no point was started'}",
        *(_bad_line(outcome, shared) for outcome in bad),
    ]


def _bad_line(outcome: Outcome, shared: set[str]) -> str:
    folder = f" ({outcome.folder})" if outcome.folder else ""
    return (
        f"  {outcome.state} [{outcome.number}] {apart(outcome.overrides, shared)}: "
        f"{outcome.message or 'no message'}{folder}"
    )


def exit_status(outcomes: Sequence[Outcome], missing: int = 0) -> int:
    """0: every point is done; 1: one failed, was interrupted or is `missing`; 3: none did, but one
    is locked by another process.
    """
    states = {outcome.state for outcome in outcomes}
    if missing or states & {FAILED, INTERRUPTED}:
        return 1
    return 3 if BUSY in states else 0
