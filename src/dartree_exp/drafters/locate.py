"""Finds a drafter's files: in a package, a local folder, or on the hub. Does not import torch."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from dartree_exp.drafters.values import CheckpointError
from dartree_exp.errors import UserError
from dartree_exp.models.hub import folder_or_snapshot

PACKAGE_SCHEME = "pkg://"
_HUB_FILES = ["config.json", "*.safetensors", "*.safetensors.index.json"]


def locate(path: str) -> Path:
    """The folder of a checkpoint. path: `pkg://<package>/<folder>`, a local folder, or a hub name
    `owner/name`.

    A hub checkpoint is downloaded (config and safetensors only) or taken from the hub's cache.
    Raises CheckpointError if nothing is found.
    """
    if path.startswith(PACKAGE_SCHEME):
        return _in_package(path)
    try:
        return folder_or_snapshot("drafter.path", path, _HUB_FILES)
    except UserError as error:
        raise CheckpointError(str(error)) from error


def _in_package(path: str) -> Path:
    """A folder of an installed package, found without importing the package."""
    name, _, inner = path.removeprefix(PACKAGE_SCHEME).partition("/")
    top, *packages = name.split(".")
    parts = [*packages, *inner.split("/")]
    if not all(part.isidentifier() for part in (top, *packages)) or ".." in parts:
        raise CheckpointError(f"drafter.path = {path}: must be {PACKAGE_SCHEME}<package>/<folder>")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # ValueError: a running script without a spec
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise CheckpointError(f"drafter.path = {path}: no package {name}")
    for root in spec.submodule_search_locations:
        folder = Path(root, *parts)
        if os.path.isdir(folder):
            return folder
    raise CheckpointError(f"drafter.path = {path}: no such folder in the installed package")
