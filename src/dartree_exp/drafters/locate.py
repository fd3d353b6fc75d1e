"""Where a drafter's files lie: shipped with a package, in a local folder, or on the hub
(torch-free).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.hub import snapshot
from dartree_exp.records.reading import user_path

PACKAGE_SCHEME = "pkg://"


def locate(path: str) -> Path:
    """Folder of a checkpoint. path: `pkg://<package>/<folder>`, a local folder, or a hub name
    `owner/name`.

    A hub checkpoint is downloaded (config and safetensors only) or taken from the hub's cache.
    Raises CheckpointError where nothing is found, saying what to do.
    """
    if path.startswith(PACKAGE_SCHEME):
        return _in_package(path)
    folder = user_path(path)
    if os.path.isdir(folder):
        return folder
    parts = path.split("/")
    if len(parts) != 2 or not all(parts) or path[0] in ".~":
        raise CheckpointError(
            f"drafter.path = {path}: no such folder, and not a hub name (owner/name)"
        )
    return _download(path)


def _in_package(path: str) -> Path:
    """A folder of an installed package, found without importing it: only the top-level name is
    looked up.
    """
    name, _, inner = path.removeprefix(PACKAGE_SCHEME).partition("/")
    top, *packages = name.split(".")
    parts = [*packages, *inner.split("/")]
    if not all(part.isidentifier() for part in (top, *packages)) or ".." in parts:
        raise CheckpointError(f"drafter.path = {path}: must be {PACKAGE_SCHEME}<package>/<folder>")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # ValueError: a running script without a spec of its own
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise CheckpointError(f"drafter.path = {path}: no package {name}")
    for root in spec.submodule_search_locations:
        folder = Path(root, *parts)
        if os.path.isdir(folder):
            return folder
    raise CheckpointError(f"drafter.path = {path}: no such folder in the installed package")


def _download(name: str) -> Path:
    from huggingface_hub.errors import HFValidationError

    try:
        return snapshot(name, ["config.json", "*.safetensors", "*.safetensors.index.json"])
    except (HFValidationError, OSError) as error:
        raise CheckpointError(
            f"drafter.path = {name}: no such folder, and the hub did not give it "
            f"({type(error).__name__}); "
            "download it elsewhere and set drafter.path=<folder>"
        ) from error
