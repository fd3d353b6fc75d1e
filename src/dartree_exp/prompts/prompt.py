"""A benchmark prompt, and how it is made from a row of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dartree_exp.prompts.template import (
    RowError,
    fields,
    fill,
    kind_of,
    single_field,
    text_of,
    value_of,
)


@dataclass(frozen=True)
class Prompt:
    """User turns of one conversation; the assistant turns in between are the target's answers.

    id: `<benchmark>/<row of the data set, from 0>`, independent of the subset.
    """

    id: str
    category: str
    turns: list[str]
    benchmark: str
    version: str


def render(row: Mapping[str, Any], template: str, optional: str) -> list[str]:
    """User turns of a row.

    The `turns` of a row (a list of strings) are used unchanged. Otherwise `template` is filled with
    the row's fields (`$field`), and `optional` is appended if the row has its fields and they are
    neither null nor blank (Alpaca's input). A template of only one field whose value is a list
    gives one turn per item (MT-Bench). Raises RowError for a field that is missing, null, blank, a
    list or an object, and if there are no turns.
    """
    if "turns" in row:
        return _turns(row, "turns")
    if not template:
        raise RowError("no `turns`, and benchmark.template is empty")
    name = single_field(template)
    if name is not None and isinstance(value_of(row, name), list):
        return _turns(row, name)
    turn = fill(template, row)
    if optional and all(_given(row.get(name)) for name in fields(optional)):
        turn += fill(optional, row)
    return [turn]


def category(row: Mapping[str, Any], benchmark: str) -> str:
    """The row's category, else the benchmark's name. Raises RowError for a category that is not a
    string or number.
    """
    return text_of(row, "category") if _given(row.get("category")) else benchmark


def _given(value: object) -> bool:
    return value is not None and not (isinstance(value, str) and not value.strip())


def _turns(row: Mapping[str, Any], name: str) -> list[str]:
    """The turns in a field: a list of strings, or one string. Raises RowError."""
    turns = [row[name]] if isinstance(row[name], str) else row[name]
    if not isinstance(turns, list) or not turns:
        raise RowError(
            f"field {name!r} is not a list of strings: it is "
            f"{'empty' if turns == [] else kind_of(turns)}"
        )
    for number, turn in enumerate(turns):
        if not isinstance(turn, str) or not turn.strip():
            found = "blank" if isinstance(turn, str) else kind_of(turn)
            raise RowError(f"field {name!r} is not a list of strings: item {number} is {found}")
    return list(turns)
