"""One point of a sweep, or a single run: check the settings, claim the folder, run, say how it ended.

Hydra calls `job`, here or in a worker process of a launcher; nothing heavy is imported before the settings are good and
the folder is this process's own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dartree_exp.config.identity import config_hash, hash_of, unread_keys
from dartree_exp.config.load import load_config, to_yaml
from dartree_exp.config.schema import Config
from dartree_exp.config.validate import check_files
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.lock import FolderBusy
from dartree_exp.records.reader import Run
from dartree_exp.records.schema import RecordError

SWEEP_ID = "DARTREE_EXP_SWEEP"
"""Environment variable that names the invocation, so that worker processes agree on it."""

SINGLE_RUNS = "runs"
DONE, SKIPPED, FAILED, INTERRUPTED, BUSY = "DONE", "SKIPPED", "FAILED", "INTERRUPTED", "BUSY"


@dataclass(frozen=True)
class Outcome:
    """How one point ended: its place in the sweep, its overrides, its folder, and why where it did not end well."""

    number: int
    overrides: list[str]
    state: str
    folder: str
    message: str = ""


def new_sweep_id() -> str:
    """Sortable by time, and different for two sweeps started in the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def sweep_folder(name: str | None) -> str:
    """The folder of a sweep under `output`: its name, else this invocation's id."""
    return name or os.environ.setdefault(SWEEP_ID, new_sweep_id())


# Registered on import, so that a launcher's worker, which imports this module to unpickle `job`, knows it as well.
OmegaConf.register_new_resolver("sweep_folder", sweep_folder, replace=True)


def job(raw: DictConfig) -> None:
    """Hydra's task function. In a sweep no failure leaves it, so that the other points run; a single run exits."""
    hydra = HydraConfig.get()
    overrides = list(hydra.overrides.task)
    if hydra.mode == RunMode.MULTIRUN:
        outcome = _sweep_point(raw, int(hydra.job.num), overrides, Path(hydra.sweep.dir))
        _note(outcome, Path(hydra.sweep.dir))
        return
    try:
        config = load_config(raw)
        check_files(config)
    except ConfigError as error:
        print(f"dartree_exp: {error}", file=sys.stderr)
        sys.exit(2)
    for key in unread_keys(config, [text.partition("=")[0].lstrip("+") for text in overrides]):
        print(f"dartree_exp: note: tree={config.tree.name} does not read {key}", file=sys.stderr)
    folder = Path(config.output) / (config.sweep.name or SINGLE_RUNS) / config_hash(config)
    outcome = _run(config, folder, 0, overrides)
    if outcome.state == SKIPPED:
        print(f"{folder} is done already; force=true runs it again")
    elif outcome.state != DONE:
        print(f"dartree_exp: {outcome.state}: {outcome.message} ({folder})", file=sys.stderr)
    sys.exit({DONE: 0, SKIPPED: 0, BUSY: 3}.get(outcome.state, 1))


def _sweep_point(raw: DictConfig, number: int, overrides: list[str], sweep_dir: Path) -> Outcome:
    try:
        raw.sweep.name = sweep_dir.name
        config = load_config(raw)
        check_files(config)
    except ConfigError as error:
        return _refuse(raw, str(error), number, overrides, sweep_dir)
    folder = sweep_dir / config_hash(config)
    print(f"[{number}] {' '.join(overrides)}  {folder}", flush=True)
    try:
        return _run(config, folder, number, overrides)
    except KeyboardInterrupt:
        _note(Outcome(number, overrides, INTERRUPTED, str(folder), "interrupted"), sweep_dir)
        raise


def _run(config: Config, path: Path, number: int, overrides: list[str]) -> Outcome:
    """Run in `path`, unless it is done or another process is at it. Ctrl-C passes through, recorded as INTERRUPTED."""
    try:
        with RunFolder.open(path, to_yaml(config), config_hash(config), config.force) as folder:
            if folder.already_done:
                return Outcome(number, overrides, SKIPPED, str(path))
            from dartree_exp.run import run

            run(config, folder)
    except FolderBusy as error:
        return Outcome(number, overrides, BUSY, str(path), str(error))
    except UserError as error:
        return Outcome(number, overrides, FAILED, str(path), str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(number, overrides, FAILED, str(path), f"{type(error).__name__}: {error}")
    status = Run(path).status
    return Outcome(number, overrides, status["state"], str(path), status["message"])


def _refuse(raw: DictConfig, message: str, number: int, overrides: list[str], sweep_dir: Path) -> Outcome:
    """Record a point whose settings cannot work as FAILED, in a folder named by what was asked for."""
    plain = OmegaConf.to_container(raw)
    assert isinstance(plain, dict)
    asked = hash_of({str(key): value for key, value in plain.items() if key not in ("force", "output", "sweep")})
    path = sweep_dir / asked
    print(f"[{number}] {' '.join(overrides)}  refused: {message}", file=sys.stderr, flush=True)
    try:
        with RunFolder.open(path, OmegaConf.to_yaml(raw), asked) as folder:
            folder.fail(message)
    except RecordError as error:
        message = f"{message} ({error})"
    return Outcome(number, overrides, FAILED, str(path), message)


def outcomes_folder(sweep_dir: Path) -> Path:
    """Where the points of this invocation leave how they ended, whichever process runs them."""
    return sweep_dir / ".outcomes" / sweep_folder(None)


def _note(outcome: Outcome, sweep_dir: Path) -> None:
    folder = outcomes_folder(sweep_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{outcome.number}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def read_outcomes(sweep_dir: Path) -> list[Outcome]:
    """How the points of this invocation ended, in the order of the sweep."""
    found = (Outcome(**json.loads(file.read_text("utf-8"))) for file in outcomes_folder(sweep_dir).glob("*.json"))
    return sorted(found, key=lambda outcome: outcome.number)
