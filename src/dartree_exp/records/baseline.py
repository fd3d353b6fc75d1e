"""Plain decoding shared by the runs of a sweep (`baseline=shared`): timed once per prompt, target and decoding settings.

Cheaper than decoding every prompt plainly in every run, at a price that tables state: the two arms of a speedup are then
not timed in the same minutes. One folder per turn, written whole, so that runs in several processes can share.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dartree_exp.config.identity import hash_of
from dartree_exp.config.schema import Config
from dartree_exp.records.files import explained, read_object, temporary_name, write_json
from dartree_exp.records.schema import RecordError

FOLDER = ".ar"
_ANSWER = "answer.json"


class SharedBaseline:
    """Answers of plain decoding in `<sweep>/.ar/<hash>/`, by sample id and prompt hash."""

    def __init__(self, sweep: Path, config: Config, made_with: Mapping[str, Any]) -> None:
        """made_with: what else an answer and its time depend on: the target's files, dtype, machine, version of the code."""
        parts = {name: asdict(getattr(config, name)) for name in ("model", "decoding", "engine")}
        del parts["model"]["drafters"]
        self._folder = sweep / FOLDER / hash_of({**parts, "protocol": config.protocol, "made_with": dict(made_with)})

    def get(self, sample_id: str, prompt_sha256: str) -> dict[str, Any] | None:
        """The stored answer (ids, finish, time); None where there is none, or a damaged one."""
        try:
            answer = read_object(self._place(sample_id, prompt_sha256) / _ANSWER)
        except RecordError:
            return None
        return answer if {"ids", "finish", "time"} <= answer.keys() else None

    def put(self, sample_id: str, prompt_sha256: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Store an answer. Of two processes that decoded the same prompt the first one's stays; returns what stays.

        A folder is renamed into place, which fails where one with a file in it is: unlike a hard link, every file
        system has that.
        """
        place = self._place(sample_id, prompt_sha256)
        own = self._folder / temporary_name("answer")
        with explained(place):
            own.mkdir(parents=True)
            try:
                write_json(own / _ANSWER, answer)
                os.rename(own, place)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                stored = self.get(sample_id, prompt_sha256)
                if stored is not None:
                    return stored
                write_json(place / _ANSWER, answer)
            finally:
                shutil.rmtree(own, ignore_errors=True)
        return answer

    def _place(self, sample_id: str, prompt_sha256: str) -> Path:
        return self._folder / hash_of({"id": sample_id, "prompt": prompt_sha256})
