"""The reference from a folder with only a correction head to the sibling folder with its backbone.
Does not import torch.

Several heads can share one backbone file. The reference has the file's hash: a different backbone
would draft badly without any error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartree_exp.drafters.values import CheckpointError, shown
from dartree_exp.models.digests import remembered_sha256
from dartree_exp.models.weight_files import WEIGHTS

CALIBRATION, EDGES = "calibration.json", "edges.json"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class BackboneRef:
    """folder: name of a sibling folder. sha256: hex digest of its `model.safetensors`."""

    folder: str
    sha256: str

    @classmethod
    def to(cls, folder: Path) -> BackboneRef:
        """A reference to a checkpoint folder."""
        return cls(folder.resolve().name, remembered_sha256(folder / WEIGHTS))

    def beside(self, folder: Path) -> Path:
        """The backbone's folder, next to the head's. Raises CheckpointError if there is none."""
        place = folder.resolve().parent / self.folder
        if not place.is_dir():
            raise CheckpointError(f"backbone.folder = {self.folder}: no such folder {place}")
        if place == folder.resolve():
            raise CheckpointError(f"backbone.folder = {self.folder}: is this folder itself")
        return place

    def check(self, folder: Path) -> Path:
        """`beside`, with the hash checked. Raises CheckpointError if the weights differ."""
        place = self.beside(folder)
        file = place / WEIGHTS
        found = remembered_sha256(file) if file.is_file() else "no such file"
        if found != self.sha256:
            raise CheckpointError(
                f"{file} is not the backbone this head was trained on: sha256 {found}, expected "
                f"{self.sha256}"
            )
        return place

    def to_json(self) -> dict[str, str]:
        return {"folder": self.folder, "sha256": self.sha256}


def reference_in(raw: dict[str, Any]) -> BackboneRef | None:
    """The reference in a `config.json`; None for a checkpoint with its own backbone. Raises
    CheckpointError.
    """
    found = raw.get("backbone")
    if found is None:
        return None
    folder, digest = (
        (found.get("folder"), found.get("sha256")) if isinstance(found, dict) else (None, None)
    )
    if not (isinstance(folder, str) and _NAME.fullmatch(folder) and isinstance(digest, str)):
        raise CheckpointError(
            f"backbone = {shown(found)}: must have `folder` (a name without slashes) and `sha256`"
        )
    return BackboneRef(folder, digest)
