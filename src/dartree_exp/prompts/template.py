"""Templates of a turn (`string.Template`): `$field` is a field of the row, `$$` a dollar sign."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Template
from typing import Any

from dartree_exp.errors import ConfigError, UserError


class RowError(UserError):
    """A row that does not have the form expected by the benchmark."""


def check_template(key: str, text: str) -> None:
    """Raise ConfigError for a template with a stray `$` or without a field; it may be empty."""
    for place in Template.pattern.finditer(text):
        if place.group("invalid") is not None:
            begin = place.start("invalid") - 1
            raise ConfigError(
                f"{key}={text!r}: the $ of {text[begin : begin + 12]!r} does not begin a field "
                "name; write $$ for a dollar sign"
            )
    if text and not Template(text).get_identifiers():
        raise ConfigError(f"{key}={text!r}: has no $field, so every prompt would be the same")


def fields(template: str) -> list[str]:
    """Names of the fields in a template."""
    return Template(template).get_identifiers()


def single_field(template: str) -> str | None:
    """The field of a template that consists of one field; None for any other template."""
    names = fields(template)
    return (
        names[0] if len(names) == 1 and template in (f"${names[0]}", f"${{{names[0]}}}") else None
    )


def fill(template: str, row: Mapping[str, Any]) -> str:
    """The template filled with the row's fields. Raises RowError as `text_of` does."""
    return Template(template).substitute({name: text_of(row, name) for name in fields(template)})


def text_of(row: Mapping[str, Any], name: str) -> str:
    """The text of a field. Raises RowError unless it is a string that is not blank, or a finite
    number.
    """
    value = value_of(row, name)
    if isinstance(value, str):
        if not value.strip():
            raise RowError(f"field {name!r} is {'blank' if value else 'empty'}")
        return value
    if (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    ):
        return str(value)
    raise RowError(f"field {name!r} is {kind_of(value)}; must be a string or a number")


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """A field of the row. Raises RowError if there is none."""
    if name not in row:
        raise RowError(f"no field {name!r}; fields: {', '.join(sorted(row)) or 'none'}")
    return row[name]


def kind_of(value: object) -> str:
    """The kind of a JSON value, in words: `null`, `a list`, `true`, `a number`."""
    if value is None:
        return "null"
    if isinstance(value, bool | float):
        return str(value).lower()
    names = {list: "a list", dict: "an object", str: "a string", int: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")
