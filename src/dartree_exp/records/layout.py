"""The files of a run folder, their checks, and whether a finished run still has all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dartree_exp.records.environment import COSTS, VERIFY
from dartree_exp.records.schema import RecordError
from dartree_exp.records.shape import check

CONFIG, ENVIRONMENT, STATUS = "config.yaml", "environment.json", "status.json"
CURVE, CHECKPOINT = "curve.jsonl", "checkpoint.safetensors"
"""Files of a training: held-out numbers per step, and the state needed to resume."""
SAMPLES, ROUNDS, TREES, SUMMARY, LOCK = (
    "samples.jsonl",
    "rounds.jsonl",
    "trees.jsonl",
    "summary.json",
    "run.lock",
)
STATES = ("RUNNING", "DONE", "FAILED", "INTERRUPTED")
RESULTS = (
    *(ENVIRONMENT, SAMPLES, ROUNDS, TREES, SUMMARY, "table.md", "table.csv"),
    *(CURVE, CHECKPOINT),
)
_KEPT = (SAMPLES, ROUNDS, TREES, SUMMARY, CURVE, CHECKPOINT)
"""Files that only grow or are written once: if one has shrunk since the end, records were lost."""

_GROUPS = (
    "model",
    "drafter",
    "tree",
    "budget",
    "benchmark",
    "decoding",
    "engine",
    "tracker",
    "record",
    "sweep",
)
_STATUS: Mapping[str, Any] = {
    **{
        "message": str,
        "traceback": str | None,
        "config_hash": str,
        "prompts": int | None,
        "resumed": list[float],
    },
    **{"started": float, "ended": float | None, "pid": int, "host": str},
    **{"inputs": dict[str, str], "files": dict[str, int]},
}
_ENVIRONMENT: Mapping[str, Any] = {
    **{
        "device": str,
        "dtype": str,
        "threads": int,
        "engine": str | None,
        "command": str,
        "cpu": dict[str, Any],
        "device_details": dict[str, Any],
    },
    **{
        "packages": dict[str, Any],
        "git": dict[str, Any] | None,
        "weights": dict[str, Any],
        "machine": dict[str, Any],
    },
    **{"samples_from": int, "earlier": list[dict[str, Any]]},
    **{"host": str, "process": str | None, "row_invariant": bool, "tolerance": float},
}


def check_status(status: dict[str, Any], file: Path) -> dict[str, Any]:
    """The content of status.json, checked. Raises RecordError."""
    if status.get("state") not in STATES:
        raise RecordError(
            f"{file}: state {status.get('state')!r} is not one of {', '.join(STATES)}"
        )
    return _checked(status, _STATUS, file)


def check_environment(environment: dict[str, Any], file: Path) -> dict[str, Any]:
    """The content of environment.json, with the types of the keys in use checked. Raises
    RecordError.
    """
    for stamp in [environment, *_checked(environment, _ENVIRONMENT, file).get("earlier", [])]:
        _checked(stamp, _ENVIRONMENT, file)
        _checked(
            stamp.get("cpu", {}), {"model": str, "cores": int | None, "flags": list[str]}, file
        )
        _check_costs(stamp.get("machine", {}), file)
        _checked(stamp.get("git") or {}, {"commit": str, "dirty": bool, "changes": str}, file)
    return environment


def _check_costs(machine: dict[str, Any], file: Path) -> None:
    costs = _checked(machine, dict.fromkeys(COSTS, dict[str, float]), file)
    for rows, ms in costs.get(VERIFY, {}).items():
        if not (rows.isdecimal() and ms > 0):
            raise RecordError(f"{file}: {VERIFY} cannot have {rows[:80]!r}: {ms}")


def check_config(config: Any, file: Path) -> dict[str, Any]:
    """The content of config.yaml: a mapping whose groups are mappings. Raises RecordError."""
    if not isinstance(config, dict) or not config:
        raise RecordError(f"{file}: holds no settings")
    return _checked(config, dict.fromkeys(_GROUPS, dict[str, Any]), file)


def _checked(values: dict[str, Any], types: Mapping[str, Any], file: Path) -> dict[str, Any]:
    for key, hint in types.items():
        if key in values and not check(hint)(values[key]):
            raise RecordError(f"{file}: {key} cannot be {str(values[key])[:80]!r}")
    return values


def sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of each kept file that exists."""
    return {name: (folder / name).stat().st_size for name in _KEPT if (folder / name).exists()}


def losses(folder: Path, status: Mapping[str, Any]) -> str:
    """One line about the files that a finished run has lost since; "" if nothing is missing.

    The status of an older version has no sizes; then the lines of samples.jsonl are counted.
    """
    held = status.get("files")
    if held is not None:
        now = sizes(folder)
        return "; ".join(
            f"{name} has {now[name]} of its {size} bytes" if name in now else f"{name} is gone"
            for name, size in held.items()
            if now.get(name, -1) < size
        )
    wanted, file = status.get("prompts") or 0, folder / SAMPLES
    found = file.read_bytes().count(b"\n") if file.is_file() else 0
    return f"{SAMPLES} has {found} of {wanted} samples" if found < wanted else ""


def refuse_links(folder: Path) -> None:
    """Raise RecordError if a file of the folder is a symbolic link: writing would change a file
    elsewhere.
    """
    for name in (CONFIG, STATUS, LOCK, *RESULTS):
        if (folder / name).is_symlink():
            raise RecordError(
                f"{folder / name} is a symbolic link; records are not written through links: "
                "remove it"
            )
