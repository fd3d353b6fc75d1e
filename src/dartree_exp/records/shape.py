"""Checks a parsed JSON value against a type annotation."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

LARGEST = 2**63
"""Integers in a record (ids, counts, sizes) are below this."""


@cache
def field_checks(record: type) -> dict[str, Callable[[object], bool]]:
    """{field: check of a value for it}, for a dataclass of plain types."""
    return {name: check(hint) for name, hint in get_type_hints(record).items()}


def check(hint: Any) -> Callable[[object], bool]:
    """The check for a type: str, bool, int, float, None, Any, and lists, dicts (with str keys) and
    unions of these.

    An int passes as a float, a bool is not a number, and floats must be finite.
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
