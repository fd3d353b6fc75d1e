"""One point of a sweep, or a single run: check the settings, lock the folder, run, record the
outcome.

Hydra calls `job`, here or in a worker process of a launcher; torch and the models are imported only
after the settings were checked and the folder is locked.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dartree_exp.config.identity import config_hash
from dartree_exp.config.load import load_config, to_yaml
from dartree_exp.config.schema import Config
from dartree_exp.config.unread import unread
from dartree_exp.console.closed_pipe import survive_closed_pipe
from dartree_exp.console.printable import printable_line
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.inputs.checks import check_files
from dartree_exp.inputs.digests import input_digests
from dartree_exp.records.files import hash_of
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.lock import FolderBusy
from dartree_exp.records.reader import Run, is_done
from dartree_exp.records.schema import RecordError
from dartree_exp.sweeps.outcomes import (
    BUSY,
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_STARTED,
    SKIPPED,
    Outcome,
    invocation_folder,
    note,
    read_outcomes,
    sweep_id,
)
from dartree_exp.sweeps.points import load_point, task_overrides
from dartree_exp.sweeps.progress import progress

SINGLE_RUNS = "runs"


def sweep_folder(name: str | None) -> str:
    """The name of a sweep's folder under `output`: `name`, else this invocation's id."""
    return name or sweep_id()


# Registered on import, because a launcher's worker imports this module to unpickle `job`.
OmegaConf.register_new_resolver("sweep_folder", sweep_folder, replace=True)


RunPoint = Callable[[Config, RunFolder], None]
"""Runs one point; imports the models only when called."""


def job(raw: DictConfig, run: RunPoint) -> float | None:
    """Hydra's task function, with `run` bound. In a sweep it catches every failure, so the other
    points run; a single run exits.

    Returns the point's `sweep.objective`, for sweepers that search, or None.
    """
    hydra = HydraConfig.get()
    overrides = task_overrides(hydra)
    if hydra.mode == RunMode.MULTIRUN:
        with survive_closed_pipe():  # here, for a launcher's worker
            return _in_sweep(raw, run, int(hydra.job.num), overrides, Path(hydra.sweep.dir))
    try:
        config = load_config(raw, overrides)
        check_files(config)
    except ConfigError as error:
        print(f"dartree_exp: {printable_line(error)}", file=sys.stderr)
        sys.exit(2)
    typed = {text.partition("=")[0].lstrip("+") for text in overrides}
    for key in sorted(typed & unread(asdict(config))):
        group = key.partition(".")[0]
        chosen = getattr(config, group).name
        print(f"dartree_exp: note: {group}={chosen} does not read {key}", file=sys.stderr)
    folder = Path(config.output) / (config.sweep.name or SINGLE_RUNS) / config_hash(config)
    outcome = _run(config, run, folder, 0, overrides)
    if outcome.state == SKIPPED:
        print(f"{folder} is already done; force=true runs it again")
    elif outcome.state != DONE:
        print(
            f"dartree_exp: {outcome.state}: {printable_line(outcome.message)} ({folder})",
            file=sys.stderr,
        )
    sys.exit({DONE: 0, SKIPPED: 0, BUSY: 3}.get(outcome.state, 1))


def _in_sweep(
    raw: DictConfig, run: RunPoint, number: int, overrides: list[str], sweep_dir: Path
) -> float | None:
    """Run one point; failures are caught, because an exception would end the sweep."""
    try:
        outcome = _sweep_point(raw, run, number, overrides, sweep_dir)
    except Exception as error:
        if not isinstance(error, UserError):
            traceback.print_exc()
        outcome = Outcome(number, overrides, FAILED, "", _message(error))
    try:
        note(outcome, sweep_dir)
    except UserError as error:  # a full disk: `finish` counts the point as missing
        print(
            f"dartree_exp: [{number}] {outcome.state}, which could not be recorded: {error}",
            file=sys.stderr,
        )
    with suppress(UserError, OSError):  # force=true in another shell may delete a folder meanwhile
        print(
            f"sweep {sweep_dir.name}: {progress(invocation_folder(sweep_dir)).line()}", flush=True
        )
    with suppress(UserError):
        return _objective(outcome, raw.sweep.objective)
    return None


def _sweep_point(
    raw: DictConfig, run: RunPoint, number: int, overrides: list[str], sweep_dir: Path
) -> Outcome:
    try:
        config = load_point(raw, overrides, sweep_dir)
    except ConfigError as error:
        return _refuse(raw, str(error), number, overrides, sweep_dir)
    folder = sweep_dir / config_hash(config)
    if config.sweep.on_error == "stop" and not is_done(folder) and _has_failed(sweep_dir):
        return Outcome(
            number, overrides, NOT_STARTED, "", "another point failed before (sweep.on_error=stop)"
        )
    print(f"[{number}] {' '.join(overrides)}  {folder}", flush=True)
    try:
        return _run(config, run, folder, number, overrides)
    except KeyboardInterrupt:
        with suppress(UserError):  # a full disk must not turn the interrupt into a failed point
            note(Outcome(number, overrides, INTERRUPTED, str(folder), "interrupted"), sweep_dir)
        raise


def _has_failed(sweep_dir: Path) -> bool:
    """Whether a point of this invocation failed, in any process."""
    return any(outcome.state == FAILED for outcome in read_outcomes(invocation_folder(sweep_dir)))


def _objective(outcome: Outcome, name: str) -> float | None:
    if outcome.state not in (DONE, SKIPPED):
        return None
    estimate: Any = (Run(Path(outcome.folder)).summary or {}).get(name)
    return estimate["value"] if isinstance(estimate, dict) else None


def _run(config: Config, run: RunPoint, path: Path, number: int, overrides: list[str]) -> Outcome:
    """Run in `path`, unless it is done or locked by another process. Ctrl-C is recorded as
    INTERRUPTED and raised.
    """
    try:
        inputs = input_digests(config)
        with RunFolder.open(
            path, to_yaml(config), config_hash(config), config.force, inputs
        ) as folder:
            for text in folder.notes:
                print(f"dartree_exp: note: {text}", file=sys.stderr, flush=True)
            if folder.already_done:
                return Outcome(number, overrides, SKIPPED, str(path))
            run(config, folder)
    except FolderBusy as error:
        return Outcome(number, overrides, BUSY, str(path), str(error))
    except Exception as error:
        if not isinstance(error, UserError):
            traceback.print_exc()
        return Outcome(number, overrides, FAILED, str(path), _message(error))
    status = Run(path).status
    return Outcome(number, overrides, status["state"], str(path), status["message"])


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def _refuse(
    raw: DictConfig, message: str, number: int, overrides: list[str], sweep_dir: Path
) -> Outcome:
    """Record a point with invalid settings as FAILED, in a folder named by the hash of its
    settings.
    """
    plain = OmegaConf.to_container(raw)
    assert isinstance(plain, dict)
    asked = hash_of(
        {str(key): value for key, value in plain.items() if key not in ("force", "output", "sweep")}
    )
    path = sweep_dir / asked
    print(
        f"[{number}] {' '.join(overrides)}  refused: {printable_line(message)}",
        file=sys.stderr,
        flush=True,
    )
    try:
        with RunFolder.open(path, OmegaConf.to_yaml(raw), asked) as folder:
            folder.fail(message)
    except RecordError as error:
        message = f"{message} ({error})"
    return Outcome(number, overrides, FAILED, str(path), message)
