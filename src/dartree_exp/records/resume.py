"""Repairs and checks of a run folder before a run resumes in it."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dartree_exp.records.files import encode_lines, repair_lines, write_atomic
from dartree_exp.records.layout import ROUNDS, SAMPLES, TREES
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord, read_samples
from dartree_exp.records.trees import TreeRecord


def repair(path: Path) -> tuple[list[SampleRecord], int]:
    """Remove what a killed writer or a truncated file left behind.

    Removed are an unfinished last line, rounds and trees without their sample, and all samples from
    the first one that lacks rounds or recorded trees. Returns the samples kept and the number
    removed. Raises RecordError for any other damage.
    """
    samples = list(read_samples(repair_lines(path / SAMPLES)))
    kinds: dict[str, type[RoundRecord] | type[TreeRecord]] = {
        ROUNDS: RoundRecord,
        TREES: TreeRecord,
    }
    lines = {
        name: [(kind.from_dict(line), line) for line in repair_lines(path / name)]
        for name, kind in kinds.items()
    }
    rounds = Counter(record.sample_key for record, _ in lines[ROUNDS])
    trees = Counter(record.sample_key for record, _ in lines[TREES])
    complete = [
        sample.error is not None
        or (rounds[sample.key] == sample.rounds and trees[sample.key] in (0, sample.rounds))
        for sample in samples
    ]
    # Samples after the first gap are removed too: stamps refer to samples by index.
    whole = samples[: complete.index(False)] if False in complete else samples
    # Samples first: if this process is killed here, the next open removes their rounds.
    if len(whole) < len(samples):
        write_atomic(path / SAMPLES, encode_lines(sample.to_dict() for sample in whole).decode())
    finished = {sample.key for sample in whole}
    for name, found in lines.items():
        kept = [line for record, line in found if record.sample_key in finished]
        if len(kept) < len(found):
            write_atomic(path / name, encode_lines(kept).decode())
    return whole, len(samples) - len(whole)


def refuse_other_inputs(
    path: Path,
    samples: Collection[SampleRecord],
    status: Mapping[str, Any],
    inputs: Mapping[str, str],
) -> None:
    """Raise RecordError if the samples were made with other files. inputs: sha256 by role."""
    held = status.get("inputs", {})
    changed = [
        f"{role} (sha256 {held[role][:12]} then, {digest[:12]} now)"
        for role, digest in inputs.items()
        if held.get(role, digest) != digest
    ]
    if changed and samples:
        raise RecordError(
            f"{path} has samples made with other files: {', '.join(changed)}; set force=true to "
            "delete them and run again, or another sweep.name to keep both"
        )


def lost_note(path: Path, lost: str) -> str:
    """A note to the user about the files that a finished run has lost."""
    trees = f"; {TREES} is not rewritten for existing samples: set force=true to run again"
    return (
        f"{path} was done, but {lost}: missing samples and rounds are decoded again"
        f"{trees if TREES in lost else ''}"
    )


def begun(
    before: Mapping[str, Any], config_hash: str, inputs: Mapping[str, str], has_samples: bool
) -> dict[str, Any]:
    """The new content of status.json. before: its old content, {} for a new folder; inputs: sha256
    by role; has_samples: whether earlier samples are kept.
    """
    now = time.time()
    return {
        "state": "RUNNING",
        "message": "",
        "traceback": None,
        "config_hash": config_hash,
        "inputs": {**(before.get("inputs", {}) if has_samples else {}), **inputs},
        "prompts": before.get("prompts"),
        "started": before.get("started", now),
        "resumed": [*before.get("resumed", []), now] if before else [],
        "ended": None,
        "pid": os.getpid(),
        "host": socket.gethostname(),
    }
