"""Whether a parsed JSON value has the type that an annotation asks for."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

LARGEST = 2**63
"""Integers of a record are below it: ids, counts, sizes."""


@cache
def field_checks(record: type) -> dict[str, Callable[[object], bool]]:
    """Field name -> whether a value may stand there, for a dataclass of plain types."""
    return {name: check(hint) for name, hint in get_type_hints(record).items()}


def check(hint: Any) -> Callable[[object], bool]:
    """Whether a value is of a type: str, bool, int, float, None, Any, and lists, dicts (of str
    keys) and unions of them.

    An int stands for a float; True is no number; floats are finite.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        parts = [check(part) for part in arguments]
        return lambda value: any(fits(value) for fits in parts)
    if origin is list:
        item = check(arguments[0])
        return lambda value: isinstance(value, list) and all(map(item, value))
    if origin is dict:
        entry = check(arguments[1])
        return lambda value: isinstance(value, dict) and all(map(entry, value.values()))
    if hint is Any:
        return lambda value: True
    if hint is int:
        return lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and -LARGEST < value < LARGEST
        )
    if hint is float:
        return lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and -LARGEST < value < LARGEST
            and math.isfinite(value)
        )
    return lambda value: isinstance(value, hint)
