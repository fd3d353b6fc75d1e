"""A benchmark prompt, and how a data set's row becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

from dartree_exp.errors import UserError


@dataclass(frozen=True)
class Prompt:
    """User turns of one conversation; assistant turns in between are the target's own answers.

    id: `<benchmark>/<row of the data set, from 0>`, the same whatever subset is drawn.
    """

    id: str
    category: str
    turns: list[str]
    benchmark: str
    version: str


class RowError(UserError):
    """A row that does not have the form the benchmark expects."""


def render(row: Mapping[str, Any], template: str, optional: str) -> list[str]:
    """User turns of a row.

    A row with `turns` (a list of strings) is ready made and taken as it is. Otherwise `template` is filled with the
    row's fields (`$field`), and `optional` is appended where the row has its fields and they are not empty (Alpaca's
    input). A template that is a single field whose value is a list gives one turn per item (MT-Bench).
    Raises RowError for a missing field or a turn that is empty or no text.
    """
    if "turns" in row:
        turns = row["turns"]
    else:
        turns = _fill(row, template)
        extra = Template(optional)
        if isinstance(turns, str) and optional and all(row.get(name) for name in extra.get_identifiers()):
            turns += extra.substitute(row)
    turns = [turns] if isinstance(turns, str) else turns
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise RowError("its turns are not a list of texts")
    return list(turns)


def category(row: Mapping[str, Any], benchmark: str) -> str:
    """The row's own category, else the benchmark's name."""
    return str(row.get("category") or benchmark)


def _fill(row: Mapping[str, Any], template: str) -> Any:
    pattern = Template(template)
    names = pattern.get_identifiers()
    if missing := [name for name in names if name not in row]:
        raise RowError(f"no field {missing[0]!r}; it has {', '.join(sorted(row))}")
    if len(names) == 1 and template == f"${names[0]}":
        return row[names[0]]
    return pattern.substitute(row)
