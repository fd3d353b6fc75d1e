"""The metadata of one setting: meaning and allowed values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

METADATA_KEY = "knob"


@dataclass(frozen=True)
class Knob:
    """The meaning of a setting and its values: the `allowed` names, or finite numbers with
    low <= x <= high and x > above.

    For a list, this holds for each element. escapes: `\\n` and `\\t` typed on the command line
    become newline and tab.
    """

    meaning: str
    allowed: Collection[str] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    escapes: bool = False


def knob(
    meaning: str,
    allowed: Collection[str] = (),
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    escapes: bool = False,
) -> Any:
    """A mandatory dataclass field that carries its `Knob`."""
    return field(metadata={METADATA_KEY: Knob(meaning, allowed, low, high, above, escapes)})
