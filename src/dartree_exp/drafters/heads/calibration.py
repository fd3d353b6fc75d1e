"""The temperatures of a confidence head, one per depth: a small JSON file next to its weights.

`training/calibrate.py` fits and writes them; loading a drafter reads them if they exist.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor

from dartree_exp.drafters.dflash.backbone_ref import CALIBRATION
from dartree_exp.drafters.values import CheckpointError, positive
from dartree_exp.models.digests import remembered_sha256
from dartree_exp.models.weight_files import WEIGHTS
from dartree_exp.records.files import write_json
from dartree_exp.records.reading import UnreadableError, read_object


def read_temperatures(folder: Path, depths: int) -> Float32[Tensor, " D"] | None:
    """One per depth, or None if there is no file. Raises CheckpointError if it is stale or
    damaged.
    """
    path = folder / CALIBRATION
    if not path.exists():
        return None
    try:
        stored = read_object(path)
        digest = remembered_sha256(folder / WEIGHTS)
    except (UnreadableError, OSError) as error:
        raise CheckpointError(
            f"drafter {folder}: {CALIBRATION} cannot be read ({error})"
        ) from error
    values = stored.get("temperatures")
    if not isinstance(values, list) or len(values) != depths:
        raise CheckpointError(
            f"drafter {folder}: {CALIBRATION}: temperatures must be {depths} positive numbers"
        )
    temperatures = torch.tensor(
        [positive("temperatures", value) for value in values], dtype=torch.float32
    )
    if not bool((temperatures > 0).all() and temperatures.isfinite().all()):  # float32 rounds
        raise CheckpointError(
            f"drafter {folder}: {CALIBRATION}: temperatures must be {depths} positive numbers"
        )
    if stored.get("weights_sha256") != digest:
        raise CheckpointError(
            f"drafter {folder}: {CALIBRATION} was made for other weights; remove it or calibrate "
            "again"
        )
    return temperatures


def write_temperatures(
    path: Path, folder: Path, temperatures: list[float], report: dict[str, Any]
) -> None:
    """Write the temperatures of the drafter in `folder` to a file. report: further keys about the
    fit.

    Loading the drafter reads `calibration.json` in its folder. Raises RecordError.
    """
    write_json(
        path,
        {
            "temperatures": temperatures,
            "weights_sha256": remembered_sha256(folder / WEIGHTS),
            **report,
        },
    )
