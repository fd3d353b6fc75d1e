"""The Hugging Face hub: is it there at all? Its client would find out by half a minute of
retries.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE = 3.0  # seconds


def is_reachable() -> bool:
    """Whether the hub's host takes a connection; behind a proxy this is left to the client."""
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


def snapshot(name: str, patterns: list[str]) -> Path:
    """The local copy of a hub repository's files, downloaded where the hub can be reached.

    Raises OSError (every error of the hub's client is one), at once where there is neither a
    network nor a copy.
    """
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(name, allow_patterns=patterns, local_files_only=not is_reachable())
    )


@contextmanager
def offline_unless_reachable() -> Iterator[None]:
    """Within the block `datasets` looks into its cache alone where the hub cannot be reached."""
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
