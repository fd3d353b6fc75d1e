"""The environment of a measurement: versions, machine, threads, weights. Does not import torch."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeGuard

COMMAND = "DARTREE_EXP_COMMAND"
"""Environment variable that passes the user's command line to a launcher's worker processes."""

_PACKAGES = (
    "dartree_exp",
    "torch",
    "triton",
    "transformers",
    "numpy",
    "safetensors",
    "hydra-core",
    "omegaconf",
    "wandb",
)
VERIFY, BESIDES = "verify_ms_by_rows", "round_ms_besides_verify"
COSTS = (VERIFY, BESIDES)
"""Keys of `machine`: median milliseconds of the verify stage by number of rows, and of the other
stages of a round."""
PROCESS = uuid.uuid4().hex
"""Identifies this process; tables compare times within one process only."""
_CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "bf16",
)

LOAD_MARGIN = 0.25
"""Allowed load above the number of cores: background processes and the run's own Python."""
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def describe_environment(
    *,
    device: str,
    dtype: str,
    threads: int,
    engine: str | None = None,
    device_details: dict[str, Any] | None = None,
    weights: dict[str, str] | None = None,
    machine: dict[str, Any] | None = None,
    row_invariant: bool = False,
    tolerance: float = 0.0,
) -> dict[str, Any]:
    """The stamp written to environment.json.

    Args:
        device: as used, "cpu" or "cuda:0".
        dtype: as used (`auto` resolved).
        threads: as used.
        engine: whose forward computed the target.
        device_details: of an accelerator: name, driver, attention kernel.
        weights: sha256 of each weights file, by role ("target", "drafter").
        machine: results of a small benchmark of this machine, with units in the keys.
        row_invariant: a self-test found that a row's bits do not depend on the other rows in the
            target's forward.
        tolerance: of near ties, in logits; 0: only equal ids pass.
    """
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": command(),
        "device": device,
        "device_details": device_details or {},
        "dtype": dtype,
        "threads": threads,
        "engine": engine,
        "cpu": cpu_description(),
        "load": {"start": load_average(), "cores": os.cpu_count() or 1},
        "platform": platform.platform(),
        "host": platform.node(),
        "process": PROCESS,
        "python": sys.version.split()[0],
        "packages": {
            name: version for name in _PACKAGES if (version := _version(name)) is not None
        },
        "git": git_commit(Path(__file__).parent),
        "weights": weights or {},
        "machine": machine or {},
        "row_invariant": row_invariant,
        "tolerance": tolerance,
    }


def command() -> str:
    """The user's command line, quoted for a shell; in a launcher's worker, that of the parent.

    A script that calls the library is named without its folder.
    """
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.orig_argv[1:]]
    return os.environ.get(COMMAND) or module_command("", words)


def module_command(module: str, arguments: Sequence[str]) -> str:
    """`python -m <module> ...` (`python ...` without a module), quoted for a shell."""
    return shlex.join(["python", *(["-m", module] if module else []), *arguments])


def cpu_description() -> dict[str, Any]:
    """Model name, usable cores and the instruction sets that matter for the speed of a dtype."""
    model, flags = platform.processor() or platform.machine(), set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    return {
        "model": model,
        "cores": usable_cores(),
        "flags": [flag for flag in _CPU_FLAGS if flag in flags],
    }


def usable_cores() -> int:
    """Cores that this process may use: its affinity, limited by the container's CPU quota (rounded
    up).
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = _CPU_LIMIT.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no file, or "max": no limit
        return cores


def load_average() -> float | None:
    """The kernel's load average of the last minute; None if there is none.

    It covers the whole machine, so it is compared with all cores.
    """
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def overload(load: object) -> str | None:
    """ "load 7 on 2 cores" if a record's `load` exceeds the number of cores, else None.

    A run alone on the machine does not exceed it: its threads are at most as many as the cores.
    """
    found, cores = (load, load.get("cores")) if isinstance(load, Mapping) else ({}, None)
    if not _is_number(cores):
        return None
    worst = max(
        (round(float(found[key]), 1) for key in ("start", "end") if _is_number(found.get(key))),
        default=0.0,
    )
    return f"load {worst:g} on {cores:g} cores" if worst > cores + LOAD_MARGIN else None


def worst_load(one: Any, other: Any) -> dict[str, Any]:
    """The larger start and the larger end of two `load` records of one machine."""
    loads = [load for load in (one, other) if isinstance(load, dict)]
    worst = {}
    for key in ("start", "end", "cores"):
        found = [load[key] for load in loads if load.get(key) is not None]
        if found:
            worst[key] = min(found) if key == "cores" else max(found)
    return worst


def code_version(environment: dict[str, Any]) -> str:
    """The version of the code that made an environment's samples, on one line."""
    version = (environment.get("packages") or {}).get("dartree_exp")
    git = environment.get("git") or {}
    parts = [f"dartree_exp {version or 'of an unknown version'}"]
    if git.get("commit"):
        parts.append(f"commit {git['commit'][:10]}")
    if git.get("dirty"):
        parts.append(
            f"with changes {git['changes'][:10]}" if git.get("changes") else "with changes"
        )
    return ", ".join(parts)


def this_code() -> str:
    """`code_version` of the code that runs now."""
    return code_version(
        {
            "packages": {"dartree_exp": _version("dartree_exp")},
            "git": git_commit(Path(__file__).parent),
        }
    )


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that tracks `folder` and whether it has changes; None for an installed
    wheel.

    `changes`: sha256 of the diff of the Python files.
    """
    # `folder` may be in a virtual environment inside an unrelated checkout.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit, changes = (
        _git(folder, "rev-parse", "HEAD"),
        _git(folder, "status", "--porcelain", "--untracked-files=no"),
    )
    if not commit:
        return None
    if not changes:
        return {"commit": commit, "dirty": False}
    difference = _git(folder, "diff", "--no-ext-diff", "HEAD", "--", ":(top)*.py") or ""
    return {
        "commit": commit,
        "dirty": True,
        "changes": hashlib.sha256(difference.encode()).hexdigest(),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
