"""Plain decoding shared by the runs of a sweep (`baseline=shared`): timed once per prompt, target
and decoding settings.

Cheaper than plain decoding in every run, but the two arms of a speedup are then timed at different
times; tables say so. One folder per turn, written atomically, so that processes can share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from dartree_exp.records.atomic import replaced
from dartree_exp.records.files import hash_of, read_object, write_json
from dartree_exp.records.schema import RecordError

FOLDER = ".ar"
_ANSWER = "answer.json"


class SharedBaseline:
    """Answers of plain decoding in `<sweep>/.ar/<hash>/`, by sample id and prompt hash."""

    def __init__(self, sweep: Path, made_with: Mapping[str, Any]) -> None:
        """made_with: everything an answer and its time depend on (decoding settings, the target's
        files, dtype, machine, code version).
        """
        self._made_with = dict(made_with)
        self._root = sweep / FOLDER
        self._folder = self._root / hash_of(self._made_with)

    def agree(self, name: str, value: int) -> int:
        """The value that the sweep's first run stored under `name`; that run stores `value`."""
        place = self._root / hash_of({**self._made_with, "agreed": name})
        stored = self._publish(place, {name: value}, lambda: self._read(place, {name}))
        return int(stored[name])

    def under(self, **conditions: object) -> SharedBaseline:
        """The baseline for runs that also share these conditions, such as the thread count."""
        other = copy(self)
        other._folder = self._root / hash_of({**self._made_with, **conditions})
        return other

    def get(self, sample_id: str, prompt_sha256: str) -> dict[str, Any] | None:
        """The stored answer (ids, finish, time); None if there is none or it is damaged."""
        return self._read(self._place(sample_id, prompt_sha256), {"ids", "finish", "time"})

    def put(self, sample_id: str, prompt_sha256: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Store an answer, unless another process has stored one; returns the stored answer."""
        place = self._place(sample_id, prompt_sha256)
        return self._publish(place, answer, lambda: self.get(sample_id, prompt_sha256))

    def _read(self, place: Path, keys: set[str]) -> dict[str, Any] | None:
        try:
            stored = read_object(place / _ANSWER)
        except RecordError:
            return None
        return stored if keys <= stored.keys() else None

    def _publish(
        self, place: Path, value: dict[str, Any], read: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Store `value` in the folder `place` unless another process was first; returns the stored
        value.

        A folder, because every file system refuses to rename a folder over a non-empty one.
        """
        with replaced(place, first_stays=True) as own:
            own.mkdir(parents=True)
            write_json(own / _ANSWER, value)
        stored = read()
        if stored is None:  # damaged
            write_json(place / _ANSWER, value)
        return value if stored is None else stored

    def _place(self, sample_id: str, prompt_sha256: str) -> Path:
        return self._folder / hash_of({"id": sample_id, "prompt": prompt_sha256})
