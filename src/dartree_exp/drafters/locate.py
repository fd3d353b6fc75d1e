"""Where a drafter's files lie: shipped with a package, in a local folder, or on the hub (torch-free)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from dartree_exp.drafters.dflash_config import CheckpointError

PACKAGE_SCHEME = "pkg://"


def locate(path: str) -> Path:
    """Folder of a checkpoint. path: `pkg://<package>/<folder>`, a local folder, or a hub name `owner/name`.

    A hub checkpoint is downloaded (config and safetensors only) or taken from the hub's cache.
    Raises CheckpointError where nothing is found, saying what to do.
    """
    if path.startswith(PACKAGE_SCHEME):
        package, _, inner = path.removeprefix(PACKAGE_SCHEME).partition("/")
        try:
            folder = Path(str(resources.files(package))) / inner
        except ModuleNotFoundError as error:
            raise CheckpointError(f"drafter.path = {path}: no package {package}") from error
        if not folder.is_dir():
            raise CheckpointError(f"drafter.path = {path}: no such folder in the installed package")
        return folder
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    parts = path.split("/")
    if len(parts) != 2 or not all(parts) or path[0] in ".~":
        raise CheckpointError(f"drafter.path = {path}: no such folder, and not a hub name (owner/name)")
    return _download(path)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, allow_patterns=["config.json", "*.safetensors", "*.safetensors.index.json"])
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"drafter.path = {name}: no such folder, and the hub did not give it ({type(error).__name__}); "
            "download it elsewhere and set drafter.path=<folder>"
        ) from error
