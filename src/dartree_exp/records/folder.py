"""The run folder: written during a run, and resumed after a crash."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dartree_exp.records.atomic import explained, remove_temporaries
from dartree_exp.records.environment import COSTS, cpu_description, load_average, worst_load
from dartree_exp.records.files import (
    append_lines,
    encode_lines,
    iter_lines,
    read_object,
    write_atomic,
    write_json,
)
from dartree_exp.records.layout import (
    CONFIG,
    ENVIRONMENT,
    LOCK,
    RESULTS,
    ROUNDS,
    SAMPLES,
    STATUS,
    SUMMARY,
    TREES,
    check_environment,
    check_status,
    losses,
    refuse_links,
    sizes,
)
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.resume import begun, lost_note, refuse_other_inputs, repair
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord, read_samples
from dartree_exp.records.stamps import stamped
from dartree_exp.records.trees import TreeRecord


class RunFolder:
    """A run folder opened for writing and locked against other processes; a context manager.

    An exception in the block records FAILED with its traceback (INTERRUPTED for KeyboardInterrupt
    and SystemExit) and propagates. Leaving the block without `done()` or `fail()` records
    INTERRUPTED.

    Attributes:
        path: the folder.
        already_done: the run is done and complete; there is nothing to do.
        notes: messages to the user about records that are missing and will be decoded again.
    """

    def __init__(
        self,
        path: Path,
        lock: FolderLock,
        status: dict[str, Any],
        samples: list[SampleRecord],
        notes: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.notes = list(notes)
        self.already_done = status["state"] == "DONE"
        self._lock = lock
        self._status = status
        self._samples = {sample.key: sample for sample in samples}

    @classmethod
    def open(
        cls,
        path: str | Path,
        config_yaml: str,
        config_hash: str,
        force: bool = False,
        inputs: Mapping[str, str] | None = None,
    ) -> Self:
        """Create or resume the folder of one configuration.

        Args:
            path: the folder; created with its parents.
            config_yaml: the resolved configuration, written as config.yaml.
            config_hash: identifies the run; a folder with another run is refused.
            force: delete what an earlier run left here.
            inputs: sha256 of the files that the result depends on, by role, as far as they are
                already on this machine.

        Raises:
            FolderBusy: another process uses the folder.
            RecordError: the folder has another run, samples made with other files or damaged
                records, or it cannot be written.
        """
        path = Path(path)
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path / LOCK)
        try:
            remove_temporaries(path)
            if force:
                for name in (STATUS, *RESULTS):
                    with explained(path / name):
                        (path / name).unlink(missing_ok=True)
            refuse_links(path)
            status = (
                check_status(read_object(path / STATUS), path / STATUS)
                if os.path.lexists(path / STATUS)
                else {}
            )
            held = status.get("config_hash", config_hash)
            if held != config_hash:
                raise RecordError(
                    f"{path} has a run with another configuration ({held}): choose another folder"
                )
            notes = []
            if status.get("state") == "DONE":
                lost = losses(path, status)
                if not lost:
                    samples = list(read_samples(iter_lines(path / SAMPLES)))
                    refuse_other_inputs(path, samples, status, inputs or {})
                    return cls(path, lock, status, samples)
                notes.append(lost_note(path, lost))
            samples, incomplete = repair(path)
            if incomplete:
                notes.append(
                    f"{path}: {ROUNDS} lacks rounds of {incomplete} samples, which are decoded "
                    "again"
                )
            refuse_other_inputs(path, samples, status, inputs or {})
            write_atomic(path / CONFIG, config_yaml)
            folder = cls(
                path,
                lock,
                begun(status, config_hash, inputs or {}, bool(samples)),
                samples,
                notes,
            )
            folder._write_status()
            return folder
        except BaseException:
            lock.release()
            raise

    def expect(self, prompts: int) -> None:
        """Record how many samples (turns) the finished run will have."""
        self._status["prompts"] = prompts
        self._write_status()

    def identify(self, inputs: Mapping[str, str]) -> None:
        """Record digests of files that were not on this machine in `open`. Raises RecordError if
        the samples were made with other files.
        """
        refuse_other_inputs(self.path, self.samples(), self._status, inputs)
        self._status["inputs"] |= inputs
        self._write_status()

    def samples(self) -> list[SampleRecord]:
        """All samples on disk, in the order they were written."""
        return list(self._samples.values())

    def threads_of_samples(self) -> int | None:
        """Thread count of the samples on disk; None if there are none or the CPU differs."""
        return self._environment_of_samples().get("threads")

    def costs_of_samples(self) -> dict[str, Any]:
        """The costs of a round that the samples on disk were decoded by, as recorded; {} if there
        are none or the CPU differs.
        """
        machine = self._environment_of_samples().get("machine", {})
        return {key: machine[key] for key in COSTS if key in machine}

    def _environment_of_samples(self) -> dict[str, Any]:
        file = self.path / ENVIRONMENT
        if not self._samples or not file.exists():
            return {}
        held = check_environment(read_object(file), file)
        return held if held.get("cpu") == cpu_description() else {}

    def write_environment(self, environment: dict[str, Any]) -> None:
        """Write environment.json, with earlier stamps in `earlier` (see `records/stamps.py`)."""
        file = self.path / ENVIRONMENT
        before = check_environment(read_object(file), file) if file.exists() else None
        write_json(file, stamped(environment, before, len(self._samples)))

    def note_load(self) -> None:
        """Add the machine's current load to environment.json, as the load at the end of the run."""
        file = self.path / ENVIRONMENT
        if file.exists():
            environment = read_object(file)
            now = {"end": load_average()}
            write_json(file, {**environment, "load": worst_load(environment.get("load"), now)})

    def append(
        self,
        sample: SampleRecord,
        rounds: Iterable[RoundRecord] = (),
        trees: Iterable[TreeRecord] = (),
    ) -> None:
        """Write one sample, its rounds and their recorded trees to disk before returning.

        The sample is written last: a crash leaves rounds without a sample, which the next `open`
        removes. Raises RecordError for contradictory or repeated records and for disk errors
        (earlier records stay valid).
        """
        sample.validate()
        rounds, trees = list(rounds), list(trees)
        if sample.key in self._samples:
            raise RecordError(
                f"sample {sample.id!r} turn {sample.turn} repeat {sample.repeat} is already "
                "recorded"
            )
        strangers = ({r.sample_key for r in rounds} | {t.sample_key for t in trees}) - {sample.key}
        if strangers or (rounds and sample.error is None and len(rounds) != sample.rounds):
            raise RecordError(
                f"sample {sample.id!r} turn {sample.turn}: its {len(rounds)} round lines do not "
                "match it"
            )
        # Encoded first: a value that JSON cannot hold must not leave rounds without a sample.
        sample_line = encode_lines([sample.to_dict()])
        append_lines(self.path / TREES, encode_lines(t.to_dict() for t in trees))
        append_lines(self.path / ROUNDS, encode_lines(r.to_dict() for r in rounds))
        append_lines(self.path / SAMPLES, sample_line)
        self._samples[sample.key] = sample

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        write_json(self.path / SUMMARY, summary)

    def done(self, message: str = "") -> None:
        """Record that the run is done; the next run of this configuration is skipped.

        Raises RecordError if the number of samples is not the planned one.
        """
        planned = self._status["prompts"]
        if planned is not None and planned != len(self._samples):
            raise RecordError(
                f"{self.path} has {len(self._samples)} samples, but the run has {planned}; "
                "set force=true to run it again from the start"
            )
        self._status["files"] = sizes(self.path)
        self._end("DONE", message)

    def fail(self, message: str) -> None:
        """Record that the run's result must not be used (a `wrong` verdict); it is not skipped next
        time.
        """
        self._end("FAILED", message)

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._status["state"] == "RUNNING":
                with suppress(RecordError):
                    self.note_load()
                if error is None:
                    self._end("INTERRUPTED", "stopped before the end")
                else:
                    interrupted = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
                    text = "".join(traceback.format_exception(error))
                    message = f"{type(error).__name__}: {error}".rstrip(": ")
                    self._end("INTERRUPTED" if interrupted else "FAILED", message, text)
        except RecordError:
            # A full disk: status.json keeps RUNNING, which reads as INTERRUPTED without a lock. The
            # original error is more important.
            if error is None:
                raise
        finally:
            self.close()

    def _end(self, state: str, message: str, trace: str | None = None) -> None:
        self._status |= {
            "state": state,
            "message": message,
            "traceback": trace,
            "ended": time.time(),
        }
        self._write_status()

    def _write_status(self) -> None:
        write_json(self.path / STATUS, self._status)
