"""The Hugging Face hub, with a quick check of whether it is reachable (its client retries for half
a minute).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from dartree_exp.errors import UserError
from dartree_exp.records.reading import user_path

_PATIENCE = 3.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_reachable() -> bool:
    """Whether the hub's host accepts a connection; always True behind a proxy."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if getproxies():
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def at_hand(path: str) -> Path | None:
    """A local folder, or the cached copy of a hub repository; None if there is neither. Does not
    use the network.
    """
    folder = user_path(path)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, local_files_only=True))
    except (OSError, ValueError):  # not downloaded yet, or not a hub name
        return None


def folder_or_snapshot(key: str, path: str, patterns: list[str]) -> Path:
    """A local folder, or a local copy of a hub repository's files (`patterns`), downloaded if the
    hub is reachable. key: the setting, for messages.

    Raises UserError if there is neither; without a network at once.
    """
    folder = user_path(path)
    if os.path.isdir(folder):
        return folder
    if not is_hub_name(path):
        raise UserError(f"{key}={path}: no such folder, and not a hub name (owner/name)")
    from huggingface_hub import snapshot_download

    offline = not is_reachable()
    try:
        return Path(snapshot_download(path, allow_patterns=patterns, local_files_only=offline))
    except (OSError, ValueError) as error:  # every error of the hub's client, and a bad name
        raise UserError(
            f"{key}={path}: no such folder, and not available from the hub "
            f"({type(error).__name__}); download it on another machine and set {key}=<folder>"
        ) from error


def is_hub_name(path: str) -> bool:
    """Whether a path has the form owner/name."""
    return _NAME.fullmatch(path) is not None


@contextmanager
def offline_unless_reachable() -> Iterator[None]:
    """In the block, `datasets` uses only its cache if the hub cannot be reached."""
    if is_reachable():
        yield
        return
    import datasets
    import huggingface_hub

    switches: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    for switch in switches:
        switch.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value
