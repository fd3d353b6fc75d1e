"""The run folder: what a run has written, and where it goes on after a crash (DESIGN section 4)."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dartree_exp.records.files import (
    append_lines,
    encode_lines,
    iter_lines,
    read_json,
    remove_temporaries,
    repair_lines,
    write_atomic,
    write_json,
)
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord, read_samples
from dartree_exp.records.trees import TreeRecord

CONFIG, ENVIRONMENT, STATUS = "config.yaml", "environment.json", "status.json"
SAMPLES, ROUNDS, TREES, SUMMARY, LOCK = "samples.jsonl", "rounds.jsonl", "trees.jsonl", "summary.json", "run.lock"
STATES = ("RUNNING", "DONE", "FAILED", "INTERRUPTED")
_RESULTS = (ENVIRONMENT, SAMPLES, ROUNDS, TREES, SUMMARY, "table.md", "table.csv")


class RunFolder:
    """A run folder opened for writing, locked against every other process; use it as a context manager.

    Leaving the block by an exception records FAILED with its traceback (INTERRUPTED for KeyboardInterrupt and
    SystemExit) and lets the exception through; leaving it without `done()` or `fail()` records INTERRUPTED.

    Attributes:
        path: the folder.
        already_done: the run had ended well before; there is nothing to do.
    """

    def __init__(self, path: Path, lock: FolderLock, status: dict[str, Any], samples: list[SampleRecord]) -> None:
        self.path = path
        self.already_done = status["state"] == "DONE"
        self._lock = lock
        self._status = status
        self._samples = {sample.key: sample for sample in samples}

    @classmethod
    def open(cls, path: str | Path, config_yaml: str, config_hash: str, force: bool = False) -> Self:
        """Create or resume the folder of one configuration.

        Args:
            path: the folder; made with its parents.
            config_yaml: the resolved configuration, written as config.yaml.
            config_hash: identifies the run; a folder that holds another one is refused.
            force: throw away what an earlier run left here.

        Raises:
            FolderBusy: another process works in the folder.
            RecordError: the folder holds another run, or damaged records.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path / LOCK)
        try:
            if force:
                for name in (STATUS, *_RESULTS):
                    (path / name).unlink(missing_ok=True)
            status = read_json(path / STATUS) if (path / STATUS).exists() else {}
            held = status.get("config_hash", config_hash)
            if held != config_hash:
                raise RecordError(f"{path} holds the run of another configuration ({held}): choose another folder")
            if status.get("state") == "DONE":
                return cls(path, lock, status, list(read_samples(iter_lines(path / SAMPLES))))
            samples = _repair(path)
            write_atomic(path / CONFIG, config_yaml)
            now = time.time()
            folder = cls(
                path,
                lock,
                {
                    "state": "RUNNING",
                    "message": "",
                    "traceback": None,
                    "config_hash": config_hash,
                    "prompts": status.get("prompts"),
                    "started": status.get("started", now),
                    "resumed": [*status.get("resumed", []), now] if status else [],
                    "ended": None,
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                },
                samples,
            )
            folder._write_status()
            return folder
        except BaseException:
            lock.release()
            raise

    def expect(self, prompts: int) -> None:
        """Note how many samples (turns) the finished run will have, for overviews."""
        self._status["prompts"] = prompts
        self._write_status()

    def finished_ids(self, repeat: int = 0) -> set[tuple[str, int]]:
        """(id, turn) of the samples already on disk."""
        return {(key[0], key[1]) for key in self._samples if key[2] == repeat}

    def samples(self) -> list[SampleRecord]:
        """All samples on disk, in the order they were written."""
        return list(self._samples.values())

    def write_environment(self, environment: dict[str, Any]) -> None:
        """Write environment.json; a resumed run on a different machine or version keeps the old stamps in `earlier`."""
        file = self.path / ENVIRONMENT
        earlier = []
        if file.exists():
            before = read_json(file)
            earlier = before.pop("earlier", [])
            if _lasting(before) != _lasting(environment):
                earlier.append(before)
        write_json(file, {**environment, "earlier": earlier} if earlier else environment)

    def append(
        self, sample: SampleRecord, rounds: Iterable[RoundRecord] = (), trees: Iterable[TreeRecord] = ()
    ) -> None:
        """Put one sample, its rounds and their recorded trees on disk before returning.

        The sample goes last: a crash in between leaves rounds without a sample, which the next `open` removes.
        Raises RecordError for contradictory or repeated records, and where the disk refuses (older records stay valid).
        """
        sample.validate()
        rounds, trees = list(rounds), list(trees)
        if sample.key in self._samples:
            raise RecordError(f"sample {sample.id!r} turn {sample.turn} repeat {sample.repeat} is already recorded")
        strangers = ({r.sample_key for r in rounds} | {t.sample_key for t in trees}) - {sample.key}
        if strangers or (rounds and sample.error is None and len(rounds) != sample.rounds):
            raise RecordError(f"sample {sample.id!r} turn {sample.turn}: its {len(rounds)} round lines do not match it")
        sample_line = encode_lines([sample.to_dict()])  # first: a value JSON does not know must not leave orphans
        append_lines(self.path / TREES, encode_lines(t.to_dict() for t in trees))
        append_lines(self.path / ROUNDS, encode_lines(r.to_dict() for r in rounds))
        append_lines(self.path / SAMPLES, sample_line)
        self._samples[sample.key] = sample

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        write_json(self.path / SUMMARY, summary)

    def done(self, message: str = "") -> None:
        """Record that the run ended well; the next run of this configuration is skipped."""
        self._end("DONE", message)

    def fail(self, message: str) -> None:
        """Record that the run ended with a result not to be used (a `wrong` verdict); it is not skipped next time."""
        self._end("FAILED", message)

    def close(self) -> None:
        """Give the folder free."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._status["state"] == "RUNNING":
                if error is None:
                    self._end("INTERRUPTED", "stopped before the end")
                else:
                    interrupted = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
                    text = "".join(traceback.format_exception(error))
                    message = f"{type(error).__name__}: {error}".rstrip(": ")
                    self._end("INTERRUPTED" if interrupted else "FAILED", message, text)
        except RecordError:
            # A full disk: the folder keeps RUNNING, which without a lock reads as INTERRUPTED. The cause matters more.
            if error is None:
                raise
        finally:
            self.close()

    def _end(self, state: str, message: str, trace: str | None = None) -> None:
        self._status |= {"state": state, "message": message, "traceback": trace, "ended": time.time()}
        self._write_status()

    def _write_status(self) -> None:
        write_json(self.path / STATUS, self._status)


def _repair(path: Path) -> list[SampleRecord]:
    """Remove what a killed writer left: half a file, half a last line, and rounds whose sample never came."""
    remove_temporaries(path)
    samples = list(read_samples(repair_lines(path / SAMPLES)))
    finished = {sample.key for sample in samples}
    kinds: dict[str, type[RoundRecord] | type[TreeRecord]] = {ROUNDS: RoundRecord, TREES: TreeRecord}
    for name, kind in kinds.items():
        lines = repair_lines(path / name)
        kept = [line for line in lines if kind.from_dict(line).sample_key in finished]
        if len(kept) < len(lines):
            write_atomic(path / name, encode_lines(kept).decode())
    return samples


def _lasting(environment: dict[str, Any]) -> dict[str, Any]:
    """What of an environment must agree for times to be comparable: not the load, the hour or the command."""
    return {
        key: value for key, value in environment.items() if key not in ("time", "load", "machine", "command", "earlier")
    }
