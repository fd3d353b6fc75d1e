"""The environment of each sample: a run may be resumed on another machine or by another version.

environment.json is the latest stamp; its `earlier` has the previous ones, oldest first. The
`samples_from` of a stamp is the index of its first sample in samples.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartree_exp.records.environment import code_version, worst_load

# Stamps that agree in these keys are merged; the others (time, load, command) may differ.
_LASTING = (
    *(
        "device",
        "device_details",
        "dtype",
        "threads",
        "engine",
        "cpu",
        "platform",
        "host",
        "python",
        "packages",
        "git",
        "weights",
    ),
    "row_invariant",
)


def stamped(
    environment: Mapping[str, Any], before: Mapping[str, Any] | None, samples: int
) -> dict[str, Any]:
    """The new content of environment.json.

    If no lasting key has changed, the two stamps are merged, with the higher load. A stamp without
    samples is dropped.

    Args:
        environment: the stamp of this process.
        before: the content of environment.json, None if there is none.
        samples: number of samples on disk.
    """
    stamp = {**environment, "samples_from": samples}
    if before is None:
        return stamp
    last = {key: value for key, value in before.items() if key != "earlier"}
    earlier = [old for old in before.get("earlier", []) if old.get("samples_from", 0) < samples]
    if _lasting(last) == _lasting(environment):
        stamp["samples_from"] = min(samples, last.get("samples_from", 0))
        stamp["load"] = worst_load(last.get("load"), environment.get("load"))
        if samples and last.get("process") != environment.get("process"):
            stamp["process"] = None  # several
    elif last.get("samples_from", 0) < samples:
        earlier.append(last)
    return {**stamp, "earlier": earlier} if earlier else stamp


def versions(environment: Mapping[str, Any], samples: int) -> list[str]:
    """ "samples 1 to 3: dartree_exp 0.1.0, commit ..." for each version of the code; [] if there
    was only one.
    """
    stamps = [*environment.get("earlier", []), environment]
    parts: list[tuple[int, str]] = []
    for stamp in stamps:
        version = code_version(stamp)
        if not parts or parts[-1][1] != version:
            parts.append((stamp.get("samples_from", 0), version))
    if len(parts) < 2:
        return []
    ends = [*(start for start, _ in parts[1:]), samples]
    return [
        f"samples {start + 1} to {end}: {version}"
        for (start, version), end in zip(parts, ends, strict=True)
        if end > start
    ]


def _lasting(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: environment.get(key) for key in _LASTING}
