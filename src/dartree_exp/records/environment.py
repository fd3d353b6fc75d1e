"""What a number was measured with: versions, machine, threads, weights. Nothing here imports torch."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

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
_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16")


def describe_environment(
    *,
    device: str,
    dtype: str,
    threads: int,
    device_details: dict[str, Any] | None = None,
    weights: dict[str, str] | None = None,
    machine: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The stamp written to environment.json.

    Args:
        device: as used, "cpu" or "cuda:0".
        dtype: as used (what `auto` became).
        threads: as used.
        device_details: of an accelerator: its name, driver, attention kernel, as the caller knows them.
        weights: sha256 of each weights file, by role ("target", "drafter").
        machine: what a small benchmark of this machine measured, with units in the keys.
    """
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "device": device,
        "device_details": device_details or {},
        "dtype": dtype,
        "threads": threads,
        "cpu": cpu_description(),
        "load": list(os.getloadavg()),
        "platform": platform.platform(),
        "host": platform.node(),
        "python": sys.version.split()[0],
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "git": git_commit(Path(__file__).parent),
        "weights": weights or {},
        "machine": machine or {},
    }


def cpu_description() -> dict[str, Any]:
    """Model name, usable cores and the instruction sets that decide which dtype is fast."""
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": model, "cores": cores, "flags": [flag for flag in _CPU_FLAGS if flag in flags]}


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that tracks `folder` and whether it has changes; None outside one (an installed wheel)."""
    # A virtual environment often lies inside somebody's checkout, which says nothing about the files installed in it.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changes)} if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
