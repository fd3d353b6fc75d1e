"""The baseline of a table; a failed run never is one."""

from __future__ import annotations

from collections.abc import Sequence

from dartree_exp.records import RecordError
from dartree_exp.report.caveats import is_result
from dartree_exp.report.labels import Group
from dartree_exp.report.tables import method_of


def baselines(groups: Sequence[Group], wanted: str | None) -> list[int | None]:
    """Index of each group's baseline; None if every run of it failed.

    wanted: a run's name in the table, its method or its folder's name; groups without it keep their
    usual baseline. None: the first run that is a result and not plain decoding.

    Raises RecordError for a name that does not name one run, or names one that failed.
    """
    usual = [_usual(group) for group in groups]
    if wanted is None:
        return usual
    found = [_named(group, wanted) for group in groups]
    if all(index is None for index in found):
        names = dict.fromkeys(name for group in groups for name in group.names)
        raise RecordError(f"baseline {wanted!r} does not name one run; names: {'; '.join(names)}")
    for group, index in zip(groups, found, strict=True):
        if index is not None and group.runs[index].state == "FAILED":
            message = group.runs[index].status.get("message")
            raise RecordError(f"baseline {wanted!r} is a FAILED run ({message}); name another one")
    return [
        default if index is None else index for index, default in zip(found, usual, strict=True)
    ]


def _usual(group: Group) -> int | None:
    """The first run that is a result and not plain decoding, else the first that did not fail."""
    order = sorted(
        range(len(group.runs)),
        key=lambda i: (method_of(group.runs[i]) == "ar", not is_result(group.runs[i])),
    )
    return next((i for i in order if group.runs[i].state != "FAILED"), None)


def _named(group: Group, wanted: str) -> int | None:
    for keys in (
        group.names,
        [method_of(run) for run in group.runs],
        [run.path.name for run in group.runs],
    ):
        found = [i for i, key in enumerate(keys) if key == wanted]
        if len(found) == 1:
            return found[0]
    return None
