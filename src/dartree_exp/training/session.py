"""One training in its run folder: start or resume it, train to the end, record how it ended."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch
from rich.console import Console

from dartree_exp.config.identity import hash_of
from dartree_exp.config.load import to_yaml
from dartree_exp.config.training import ON_POLICY, TrainConfig, identity
from dartree_exp.console.progress_line import ProgressLine
from dartree_exp.console.terminate import deferred
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.records.environment import describe_environment
from dartree_exp.records.files import append_lines, encode_lines, repair_lines, write_atomic
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.layout import CURVE
from dartree_exp.records.reader import Run, is_run_folder
from dartree_exp.trackers import start_tracker
from dartree_exp.trackers.tracker import RunInfo, Tracker
from dartree_exp.training.corpus import frequent_ids, load_samples, split_holdout
from dartree_exp.training.on_policy import OnPolicyTrainer
from dartree_exp.training.provenance import features_record, file_record, refuse_changes
from dartree_exp.training.settings import corrects
from dartree_exp.training.target import load
from dartree_exp.training.team import Team
from dartree_exp.training.trainer import Trainer

TRAININGS = "training"


def run_folder(config: TrainConfig) -> Path:
    """Where the training of this configuration is recorded."""
    name = config.name or hash_of(identity(config))
    return Path(config.output).expanduser() / TRAININGS / name


def train(config: TrainConfig) -> str:
    """Train, unless it is done; how it ended, as one line for the first process to print.

    Raises UserError, and KeyboardInterrupt where asked to stop.
    """
    path = run_folder(config)
    with Team() as team, ExitStack() as stack:
        if team.rank:
            [begun] = team.follow([0.0])
            if begun:
                _session(config, path, None, team)
            return ""
        begun = False
        try:
            folder = stack.enter_context(_opened(config, path))
            begun = not folder.already_done
        finally:
            team.follow([float(begun)])
        if not begun:
            return f"{path} is done already; force=true trains again"
        _session(config, path, folder, team)
        return str(path)


def _opened(config: TrainConfig, path: Path) -> RunFolder:
    """The run folder, locked. Raises RecordError, and InputError naming the settings in which what
    it holds differs.
    """
    mine = identity(config)
    if is_run_folder(path) and not config.force:
        held = Run(path).config
        flat = {
            f"{group}.{key}": value
            for group in ("model", "training")
            for key, value in held.get(group, {}).items()
        }
        refuse_changes(path, {**held, **flat}, mine, "; choose another name, or force=true")
    return RunFolder.open(path, to_yaml(config), hash_of(mine), config.force)


def _session(config: TrainConfig, path: Path, folder: RunFolder | None, team: Team) -> None:
    """Train to the end in this process. folder: None in all processes but the first."""
    trainer = _trainer(config, path, team)
    with ExitStack() as stack:
        log = None if folder is None else stack.enter_context(_Log(config, folder, trainer))
        _loop(config, trainer, team, log)
    if folder is not None:
        folder.done()


def _trainer(config: TrainConfig, path: Path, team: Team) -> Trainer:
    if config.training.stage == ON_POLICY:
        return OnPolicyTrainer.begin(config, path, team)
    data, features = (Path(text or "").expanduser() for text in (config.data, config.features))
    record = features_record(features)
    target = load(config.model, config.threads)
    captured = {"text": record["text"], "target": record["target"]["weights_sha256"]}
    now = {"text": file_record(data), "target": target.weights_sha256}
    refuse_changes(features, captured, now)
    samples, _ = split_holdout(load_samples(data), record["holdout"], record["seed"])
    count = config.training.vocab
    ids = list(range(target.vocab_size)) if count is None else frequent_ids(samples, count)
    return Trainer(config, target, path, record, ids, team)


def _loop(config: TrainConfig, trainer: Trainer, team: Team, log: _Log | None) -> None:
    last_save, began = time.perf_counter(), time.process_time()
    spent = trainer.seconds
    asked: KeyboardInterrupt | None = None
    with deferred([SIGINT]) as stop_if_asked:
        while trainer.progress() < 1:
            before = trainer.number
            trainer.step()
            try:
                stop_if_asked()
            except KeyboardInterrupt as error:
                asked = error
            now = time.perf_counter()
            # Every process must see the same progress, and stop at the same step.
            used = (time.process_time() - began) / config.threads
            trainer.seconds, stop = team.follow([spent + used, float(asked is not None)])
            if log is None:
                if stop:
                    return
                continue
            log.stepped()
            ended = trainer.progress() >= 1
            due = trainer.number > before and not trainer.number % config.training.validate_every
            if due or ended:
                log.validated()
            if ended or stop or now - last_save > config.training.save_every:
                trainer.save()
                last_save = now
            if asked is not None and not ended:
                raise asked


class _Log(ProgressLine):
    """What the first process says and records of a training: the line, the curve, the mirror."""

    def __init__(self, config: TrainConfig, folder: RunFolder, trainer: Trainer) -> None:
        s = config.training
        self._folder, self._trainer, self._config = folder, trainer, config
        self._of_steps = s.steps is not None
        super().__init__(
            s.steps if s.steps is not None else max(1, int(60 * (s.minutes or 0))),
            Console(),
            self._units(),
            f"{s.stage} {s.head}" if corrects(s.stage) else f"{s.family} {s.stage}",
            unit="step" if self._of_steps else "second",
        )

    def __enter__(self) -> _Log:
        """Write the environment, and drop lines of the curve that were written after the
        checkpoint.
        """
        trainer, file = self._trainer, self._folder.path / CURVE
        weights = {"target": trainer.record["target"]["weights_sha256"]}
        dtype = "bf16 products" if cpu_has_bf16() else "fp32"
        threads, machine = torch.get_num_threads(), {"processes": trainer.team.size}
        self._folder.write_environment(
            describe_environment(
                device="cpu", dtype=dtype, threads=threads, weights=weights, machine=machine
            )
        )
        rows = repair_lines(file)
        kept = [row for row in rows if row["step"] <= trainer.number]
        if len(kept) < len(rows):
            write_atomic(file, encode_lines(kept).decode())
        name, key = self._folder.path.name, hash_of(identity(self._config))
        info = RunInfo(key, name, TRAININGS, self._config.training.stage, self._folder.path)
        self._tracker: Tracker = start_tracker(self._config.tracker, asdict(self._config), info)
        self._row: dict[str, Any] | None = None
        for row in kept:  # a resumed run mirrors itself whole
            self._mirror(row)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        summary = self._row if error is None else None
        try:
            if summary is not None:
                self._folder.note_load()
                self._folder.write_summary(summary)
        finally:
            self._tracker.finish(summary)

    def status(self) -> str:
        running = "  ".join(f"{key} {x:.3f}" for key, x in self._trainer.running.items() if x)
        samples = self._trainer.seen()["samples"]
        step = "" if self._of_steps else f"step {self._trainer.number}  "
        return f"{step}{running}  {samples} samples  {super().status()}"

    def stepped(self) -> None:
        """Show how far the training is."""
        self.advance(self._units())

    def validated(self) -> None:
        """Write a line of the curve."""
        row = self._trainer.validate()
        append_lines(self._folder.path / CURVE, encode_lines([row]))
        self._mirror(row)
        self.say(self._trainer.said(row))

    def _mirror(self, row: dict[str, Any]) -> None:
        self._row = row
        numbers = {f"train/{key}": x for key, x in row.items() if isinstance(x, int | float)}
        by_slot = {
            f"train/{key}_{slot}": x
            for key, values in row.items()
            if isinstance(values, list)
            for slot, x in enumerate(values)
        }
        self._tracker.log_row({"train/index": row["step"], **numbers, **by_slot})

    def _units(self) -> int:
        return self._trainer.number if self._of_steps else int(self._trainer.seconds)
