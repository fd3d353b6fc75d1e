"""What a folder is cleaned of, and what it must agree with, before a run goes on in it."""

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
    """Remove what a killed writer or a cut file left.

    That is half a last line, rounds and trees without their sample, and the samples from the first
    on that lacks some of its rounds or, where trees are recorded of it, some of its trees. Returns
    the samples that stay, and how many do not. Raises RecordError for damage that is no cut.
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
    # Those behind the first gap go as well: stamps count samples from the start of the file.
    whole = samples[: complete.index(False)] if False in complete else samples
    # Samples first: rounds without a sample are removed by the next open, should this one be killed
    # here.
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
    """Raise RecordError where the folder's samples were made with files of other content. inputs:
    sha256 by role.
    """
    held = status.get("inputs", {})
    changed = [
        f"{role} (sha256 {held[role][:12]} then, {digest[:12]} now)"
        for role, digest in inputs.items()
        if held.get(role, digest) != digest
    ]
    if changed and samples:
        raise RecordError(
            f"{path} holds samples made with other files: {', '.join(changed)}; force=true throws "
            "them away and runs "
            "again, another sweep.name keeps both"
        )


def lost_note(path: Path, lost: str) -> str:
    """What a run that was done will do about files it has lost."""
    trees = f"; {TREES} is not written again for samples that are there: force=true runs again"
    return (
        f"{path} was done, but {lost}: missing samples and rounds are decoded again"
        f"{trees if TREES in lost else ''}"
    )


def begun(
    before: Mapping[str, Any], config_hash: str, inputs: Mapping[str, str], has_samples: bool
) -> dict[str, Any]:
    """What status.json says from now on. before: what it said, {} for a new folder; inputs: sha256
    by role; has_samples: some of the run's samples stay.
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
