"""Short names of runs, by their method and the settings that differ, and of comparable groups of
runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartree_exp.config.unread import unread
from dartree_exp.console.printable import printable_line
from dartree_exp.records import Run
from dartree_exp.records.flat import flatten
from dartree_exp.report.tables import method_of

_NOT_COMPARED = ("force", "output", "record", "sweep", "tracker", "method")
_METHOD_PARTS = ("drafter", "tree", "budget", "verify")
_OF_TARGET = ("drafter.path",)  # every target has its own
_LAW = ("model.name", "model.path", "benchmark.name", "benchmark.version")

_Law = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Group:
    """Runs of one target, one set of prompts and one decoding distribution, which a table can
    compare.

    `title`: the settings in which the group differs from the others, "" if it is the only one;
    `names`, `hidden`: see `name_runs`.
    """

    title: str
    runs: list[Run]
    names: list[str]
    hidden: list[str]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of their first run. Seeds and limits on prompts do not split groups:
    pairing uses the shared prompts.
    """
    members: dict[_Law, list[Run]] = {}
    flats: dict[_Law, dict[str, str]] = {}
    for run in runs:
        law = _law(settings(run.config))
        flats.setdefault(law, dict(law))
        members.setdefault(law, []).append(run)
    titles = [" ".join(part) for part in _apart(list(flats.values()))]
    return [
        Group(title, runs, *name_runs(runs))
        for title, runs in zip(titles, members.values(), strict=True)
    ]


def name_runs(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Names in the order of the runs, and the settings that differ besides those in the names.

    Equal names get the folder's name appended.
    """
    names, hidden = name_settings(
        [method_of(run) for run in runs], [read_settings(run.config) for run in runs]
    )
    return [
        f"{n} {r.path.name}" if names.count(n) > 1 else n for n, r in zip(names, runs, strict=True)
    ], hidden


def name_settings(
    methods: Sequence[str], flat: Sequence[Mapping[str, str]]
) -> tuple[list[str], list[str]]:
    """Names of flat configurations: the method, then the settings that differ; and the differing
    settings that are not in the names.

    Settings of a method's parts are shown only if runs of one method differ in them; all others
    (model, benchmark, decoding, engine) are shown whenever they differ.
    """
    compared = _differing(flat)
    outer = [key for key in compared if key.split(".")[0] not in _METHOD_PARTS]
    inner = [key for key in compared if key not in outer]
    parts: list[list[str]] = [[] for _ in flat]
    shown = _tell_apart(outer, flat, parts, [()] * len(flat))
    _tell_apart(inner, flat, parts, list(zip(methods, map(tuple, parts), strict=True)))
    names = [
        printable_line(" ".join([method, *part]))
        for method, part in zip(methods, parts, strict=True)
    ]
    return names, [key for key in outer if key not in shown]


def method_names(runs: Sequence[Run]) -> dict[Path, str]:
    """Names by folder without target, prompts and decoding, so a method has one name in all groups.

    Runs of one group with the same name (two seeds, two thread counts) get their folder's name
    appended.
    """
    flat = [read_settings(run.config) for run in runs]
    inner = [
        {k: v for k, v in f.items() if k.split(".")[0] in _METHOD_PARTS and k not in _OF_TARGET}
        for f in flat
    ]
    names, _ = name_settings([method_of(run) for run in runs], inner)
    seen = Counter((name, _law(f)) for name, f in zip(names, flat, strict=True))
    told = zip(runs, names, flat, strict=True)
    return {
        run.path: f"{name} {run.path.name}" if seen[name, _law(f)] > 1 else name
        for run, name, f in told
    }


def settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key -> value as text."""
    return {key: "null" if value is None else str(value) for key, value in flatten(config)}


def read_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The flat settings without those that the chosen parts do not read."""
    ignored = unread(config)
    return {key: value for key, value in settings(config).items() if key not in ignored}


def compared(config: Mapping[str, Any]) -> dict[str, str]:
    """The flat settings that a comparison uses: without output, tracker and names."""
    return {
        key: value
        for key, value in read_settings(config).items()
        if key.split(".")[0] not in _NOT_COMPARED
    }


def _law(flat: Mapping[str, str]) -> _Law:
    """What the runs of a group have in common: target, prompts, the law of decoding."""
    chosen = (k for k in flat if k in _LAW or (k.startswith("decoding.") and k != "decoding.seed"))
    return tuple(sorted((key, flat[key]) for key in chosen))


def _apart(flat: Sequence[Mapping[str, str]]) -> list[list[str]]:
    parts: list[list[str]] = [[] for _ in flat]
    _tell_apart(_differing(flat), flat, parts, [()] * len(flat))
    return parts


def _differing(flat: Sequence[Mapping[str, str]]) -> list[str]:
    keys = list(dict.fromkeys(key for config in flat for key in config))
    found = [
        key
        for key in keys
        if key.split(".")[0] not in _NOT_COMPARED and len({_at(c, key) for c in flat}) > 1
    ]
    return sorted(found, key=lambda key: not key.endswith(".name"))  # choices before settings


def _tell_apart(
    keys: Iterable[str],
    flat: Sequence[Mapping[str, str]],
    parts: list[list[str]],
    groups: list[Any],
) -> set[str]:
    """Add `key=value` to the runs of every group that a key splits further. Returns the keys
    used.
    """
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


def _at(config: Mapping[str, str], key: str) -> str:
    return config.get(key, "null")
