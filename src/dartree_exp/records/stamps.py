"""Which samples of a run were made under which environment: a run may be resumed elsewhere, or by
other code.

environment.json is the latest stamp; `earlier` in it are those before, oldest first. Each says in
`samples_from` which sample it starts with, counted from 0 in the order of samples.jsonl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartree_exp.records.environment import code_version, worst_load

# What must agree for two stamps to be one; the rest (time, load, command) may differ between starts
# of one run.
_LASTING = (
    *(
        "device",
        "device_details",
        "dtype",
        "threads",
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
    """What environment.json holds from now on.

    Where nothing lasting has changed it is one stamp, with the worst load of both; one that no
    sample was made under is forgotten.

    Args:
        environment: the stamp of this process.
        before: what environment.json held, None where there was none.
        samples: how many are on disk.
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
    """ "samples 1 to 3: dartree_exp 0.1.0, commit ..." for each version of the code; [] where one
    made them all.
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
