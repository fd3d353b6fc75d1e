"""The calibration of a drafter's edges: a small JSON file next to its weights.

`training/edges.py` fits and writes it; loading a drafter reads it if it exists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dartree_exp.drafters.dflash.backbone_ref import EDGES
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.digests import remembered_sha256
from dartree_exp.models.weight_files import WEIGHTS
from dartree_exp.records.files import write_json
from dartree_exp.records.reading import UnreadableError, read_object

Pairs = dict[str, dict[float, tuple[float, float]]]
"""Scorer -> temperature -> (a, b): p(accepted | parent accepted) = sigmoid(a logit(q) + b)."""


def read_edges(folder: Path) -> Pairs:
    """{} if there is no file. Raises CheckpointError if it is stale or damaged."""
    path = folder / EDGES
    if not path.exists():
        return {}
    try:
        stored = read_object(path)
        digest = remembered_sha256(folder / WEIGHTS)
    except (UnreadableError, OSError) as error:
        raise CheckpointError(f"drafter {folder}: {EDGES} cannot be read ({error})") from error
    try:
        pairs = {
            scorer: {float(t): _pair(pair) for t, pair in by_temperature.items()}
            for scorer, by_temperature in stored["pairs"].items()
        }
        if not all(0 <= t < math.inf for by_temperature in pairs.values() for t in by_temperature):
            raise ValueError("a temperature is negative or not finite")
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"drafter {folder}: {EDGES}: pairs must be, for each scorer and temperature, [a, b] "
            f"with a > 0 ({error})"
        ) from error
    if stored.get("weights_sha256") != digest:
        raise CheckpointError(
            f"drafter {folder}: {EDGES} was made for other weights; remove it or calibrate again"
        )
    return pairs


def _pair(pair: Any) -> tuple[float, float]:
    a, b = (float(x) for x in pair if not isinstance(x, str | bool))
    if not (0 < a < math.inf and math.isfinite(b)):
        raise ValueError(f"{pair} is no such pair")
    return a, b


def stored_edges(path: Path, folder: Path) -> dict[str, Any]:
    """The content of a file that `write_edges` wrote for the weights in `folder`; empty tables if
    there is none, or it was made for others.
    """
    empty: dict[str, Any] = {"pairs": {}, "judged": {}}
    try:
        stored = read_object(path)
    except (UnreadableError, OSError):
        return empty
    fits = stored.get("weights_sha256") == remembered_sha256(folder / WEIGHTS)
    return empty | stored if fits else empty


def write_edges(path: Path, folder: Path, pairs: Mapping[str, Any], report: dict[str, Any]) -> None:
    """Write the pairs of the drafter in `folder` to a file. report: further keys about the fit.

    Loading the drafter reads `edges.json` in its folder. Raises RecordError.
    """
    stamp = {"weights_sha256": remembered_sha256(folder / WEIGHTS)}
    write_json(path, {"pairs": pairs, **stamp, **report})
