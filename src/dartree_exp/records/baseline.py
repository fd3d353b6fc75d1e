"""Plain decoding shared by the runs of a sweep (`baseline=shared`): timed once per prompt, model and decoding settings.

Cheaper than decoding every prompt plainly in every run, at a price that tables state: the two arms of a speedup are then
not timed in the same minutes. One file per turn, written whole, so that runs in several processes can share a folder.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dartree_exp.config.identity import hash_of
from dartree_exp.config.schema import Config
from dartree_exp.records.files import read_json, write_json

FOLDER = ".ar"


class SharedBaseline:
    """Answers of plain decoding in `<sweep>/.ar/<hash>/`, by sample id and prompt hash."""

    def __init__(self, sweep: Path, config: Config) -> None:
        parts = {name: asdict(getattr(config, name)) for name in ("model", "decoding", "engine")}
        self._folder = sweep / FOLDER / hash_of({**parts, "protocol": config.protocol})

    def get(self, sample_id: str, prompt_sha256: str) -> dict[str, Any] | None:
        """The stored answer (ids, finish, time), or None."""
        file = self._file(sample_id, prompt_sha256)
        return read_json(file) if file.exists() else None

    def put(self, sample_id: str, prompt_sha256: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Store an answer. Of two processes that decoded the same prompt the first one's stays; returns what stays."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(sample_id, prompt_sha256)
        own = file.with_suffix(f".{uuid.uuid4().hex}")
        write_json(own, answer)
        try:
            os.link(own, file)
        except FileExistsError:
            return read_json(file)
        finally:
            own.unlink()
        return answer

    def _file(self, sample_id: str, prompt_sha256: str) -> Path:
        return self._folder / f"{hash_of({'id': sample_id, 'prompt': prompt_sha256})}.json"
