"""Nested mappings as flat ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(values: Mapping[str, Any], joint: str = ".") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, and the keys above it put together with `joint`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}{joint}{below}", leaf) for below, leaf in flatten(value, joint))
        else:
            yield str(key), value
