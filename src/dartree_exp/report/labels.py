"""Short names for the runs of a comparison: the method, and the settings that tell the runs apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dartree_exp.records import Run
from dartree_exp.report.tables import method_of

_NOT_COMPARED = ("force", "output", "sweep", "tracker", "method")
_METHOD_PARTS = ("drafter", "tree", "budget")


def name_runs(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Names in the order of the runs, and the settings that differ beyond what the names show.

    Settings of drafter and tree count only among runs of one method (its name stands for them); all others (model,
    benchmark, decoding, engine) are named wherever they differ. Equal names get the folder's name appended.
    """
    flat = [_flatten(run.config) for run in runs]
    keys = list(dict.fromkeys(key for config in flat for key in config))
    compared = [key for key in keys if key.split(".")[0] not in _NOT_COMPARED and len({_at(c, key) for c in flat}) > 1]
    compared.sort(key=lambda key: not key.endswith(".name"))  # a group's choice says more than its settings
    outer = [key for key in compared if key.split(".")[0] not in _METHOD_PARTS]
    inner = [key for key in compared if key not in outer]

    parts: list[list[str]] = [[] for _ in runs]
    methods = [method_of(run) for run in runs]
    shown = _tell_apart(outer, flat, parts, [()] * len(runs))
    shown |= _tell_apart(inner, flat, parts, list(zip(methods, map(tuple, parts), strict=True)))
    names = [" ".join([method, *part]) for method, part in zip(methods, parts, strict=True)]
    names = [f"{n} {r.path.name}" if names.count(n) > 1 else n for n, r in zip(names, runs, strict=True)]
    hidden = [key for key in outer if key not in shown]
    return names, hidden


def _tell_apart(
    keys: Iterable[str], flat: Sequence[Mapping[str, str]], parts: list[list[str]], groups: list[Any]
) -> set[str]:
    """Add `key=value` to the runs of every group that the key splits further, key by key; the keys used."""
    used = set()
    for key in keys:
        for group in set(groups):
            members = [i for i, g in enumerate(groups) if g == group]
            if len({_at(flat[i], key) for i in members}) < 2:
                continue
            used.add(key)
            for i in members:
                value = _at(flat[i], key)
                parts[i].append(f"{key.removesuffix('.name')}={value}")
                groups[i] = (group, value)
    return used


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + str(key)] = "null" if value is None else str(value)
    return flat


def _at(config: Mapping[str, str], key: str) -> str:
    return config.get(key, "null")
