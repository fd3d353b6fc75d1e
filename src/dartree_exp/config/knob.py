"""What is said of one setting beside its type."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

METADATA_KEY = "knob"


@dataclass(frozen=True)
class Knob:
    """What a setting means and which values it takes: the `allowed` names, or finite numbers
    between the bounds.

    low <= x <= high and x > above; for a list, the same holds for each of its elements. escapes:
    `\\n` and `\\t` typed on the command line are a newline and a tab.
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
