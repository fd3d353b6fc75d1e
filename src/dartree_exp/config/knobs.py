"""The schema as a list of settings: the values each takes, and the closest match for a typo."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dartree_exp.config.knob import METADATA_KEY, Knob
from dartree_exp.config.schema import Config


def knobs(schema: type = Config, prefix: str = "") -> Iterator[tuple[str, Any, Knob]]:
    """(dotted key, type, knob) of every setting, in the order of the schema."""
    hints = get_type_hints(schema)
    for field in fields(schema):
        key = prefix + field.name
        if is_dataclass(hints[field.name]):
            yield from knobs(hints[field.name], key + ".")
        else:
            yield key, hints[field.name], field.metadata[METADATA_KEY]


def describe(hint: Any, knob: Knob) -> str:
    """The values a setting takes, in words: `an integer >= 1, or null`."""
    optional = isinstance(hint, UnionType) and NoneType in get_args(hint)
    kinds = (
        [kind for kind in get_args(hint) if kind is not NoneType]
        if isinstance(hint, UnionType)
        else [hint]
    )
    words = [_describe_kind(kind, knob) for kind in kinds]
    return ", or ".join([*words, "null"] if optional else words)


def _describe_kind(kind: Any, knob: Knob) -> str:
    if kind is str and knob.allowed:
        return ("one of " if len(knob.allowed) > 1 else "") + ", ".join(knob.allowed)
    if kind in (int, float):
        return _with_bounds("an integer" if kind is int else "a number", knob)
    if get_origin(kind) is list:
        item = get_args(kind)[0]
        words = {int: "a list of integers", str: "a list of strings"}
        return _with_bounds(words.get(item, "a list"), knob)
    return {str: "a string", bool: "true or false"}.get(kind, "a mapping")


def _with_bounds(word: str, knob: Knob) -> str:
    bounds = [
        f"{sign} {int(bound) if bound == int(bound) else bound}"
        for sign, bound in ((">=", knob.low), (">", knob.above), ("<=", knob.high))
        if bound is not None
    ]
    return f"{word} {' and '.join(bounds)}" if bounds else word


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The closest of `names`, or None if nothing is close."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)), None)


def nearest_key(key: str, schema: type = Config) -> str | None:
    """The closest setting to a mistyped dotted key: by the whole key, else by its last part in any
    group.
    """
    keys = [name for name, _, _ in knobs(schema)]
    close = nearest(key, keys)
    if close is not None:
        return close
    by_last_part: dict[str, str] = {}
    for name in keys:
        by_last_part.setdefault(name.rpartition(".")[2], name)
    last = nearest(key.rpartition(".")[2], by_last_part)
    return by_last_part[last] if last else None


def did_you_mean(name: str | None) -> str:
    """The end of an error line, empty if there is no suggestion."""
    return f"; did you mean {name}?" if name else ""
