"""Nested mappings as flat ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(values: Mapping[str, Any], joint: str = ".") -> Iterator[tuple[str, Any]]:
    """(keys joined with `joint`, value) for every value that is not a mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}{joint}{below}", leaf) for below, leaf in flatten(value, joint))
        else:
            yield str(key), value
