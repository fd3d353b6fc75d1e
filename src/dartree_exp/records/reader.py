"""Reading a run folder without touching it: what reports work from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dartree_exp.records.files import iter_lines, read_json
from dartree_exp.records.folder import CONFIG, ENVIRONMENT, LOCK, ROUNDS, SAMPLES, STATUS, SUMMARY, TREES
from dartree_exp.records.lock import is_locked
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord, read_samples
from dartree_exp.records.trees import TreeRecord


@dataclass(frozen=True)
class Run:
    """A run folder as it lies on disk, finished or not; files are read when asked for."""

    path: Path

    def __post_init__(self) -> None:
        if not is_run_folder(self.path):
            raise RecordError(f"{self.path} is not a run folder: it has no {STATUS}")

    @cached_property
    def status(self) -> dict[str, Any]:
        """status.json."""
        return read_json(self.path / STATUS)

    @cached_property
    def state(self) -> str:
        """RUNNING, DONE, FAILED or INTERRUPTED; a folder that says RUNNING but has no process was interrupted."""
        state = self.status.get("state", "FAILED")
        return "INTERRUPTED" if state == "RUNNING" and not is_locked(self.path / LOCK) else state

    @cached_property
    def samples(self) -> list[SampleRecord]:
        """Complete lines of samples.jsonl."""
        return list(read_samples(iter_lines(self.path / SAMPLES)))

    @cached_property
    def rounds(self) -> list[RoundRecord]:
        """Rounds of the complete samples."""
        finished = {sample.key for sample in self.samples}
        rounds = (RoundRecord.from_dict(line) for line in iter_lines(self.path / ROUNDS))
        return [r for r in rounds if r.sample_key in finished]

    @cached_property
    def trees(self) -> list[TreeRecord]:
        """Recorded trees of the complete samples, in the order of rounds; [] where none were recorded."""
        finished = {sample.key for sample in self.samples}
        trees = (TreeRecord.from_dict(line) for line in iter_lines(self.path / TREES))
        return [t for t in trees if t.sample_key in finished]

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml as plain dicts and lists."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        try:
            return OmegaConf.to_container(OmegaConf.load(self.path / CONFIG), resolve=True)  # type: ignore[return-value]
        except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
            raise RecordError(f"{self.path / CONFIG}: {' '.join(str(error).split())}") from error

    @cached_property
    def environment(self) -> dict[str, Any]:
        """environment.json, or {} where the run did not come so far."""
        file = self.path / ENVIRONMENT
        return read_json(file) if file.exists() else {}

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """summary.json as the run wrote it, or None."""
        file = self.path / SUMMARY
        return read_json(file) if file.exists() else None


def is_run_folder(path: Path) -> bool:
    """Whether a run was ever opened in this folder."""
    return (path / STATUS).is_file()


def is_done(path: Path) -> bool:
    """Whether the run in this folder ended well; False where there is no run."""
    return is_run_folder(path) and Run(path).state == "DONE"


def find_runs(path: Path) -> list[Run]:
    """The run folder `path`, or all run folders at any depth below it, by path; RecordError where there are none."""
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder")
    if is_run_folder(path):
        return [Run(path)]
    runs = [Run(status.parent) for status in sorted(path.rglob(STATUS))]
    if not runs:
        raise RecordError(f"{path} holds no run: no {STATUS} in it or below")
    return runs
