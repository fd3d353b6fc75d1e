"""What was fitted to a drafter's scores: a small JSON file next to its weights.

`training/edges.py` and `training/temper.py` write it; loading a drafter reads it if it exists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dartree_exp.drafters.dflash.backbone_ref import EDGES
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.digests import remembered_sha256
from dartree_exp.models.weight_files import WEIGHTS
from dartree_exp.records.files import write_json
from dartree_exp.records.reading import UnreadableError, read_object

Pairs = dict[str, dict[float, tuple[float, float]]]
"""Scorer -> temperature -> pair."""


class Fitted(NamedTuple):
    """edges: (a, b), p(accepted | parent accepted) = sigmoid(a logit(q) + b). coupled: (temper,
    spread), see `trees/coupled.py`.
    """

    edges: Pairs
    coupled: Pairs


NOT_FITTED = Fitted({}, {})


def read_edges(folder: Path) -> Fitted:
    """Empty if there is no file. Raises CheckpointError if it is stale or damaged."""
    path = folder / EDGES
    if not path.exists():
        return NOT_FITTED
    try:
        stored = read_object(path)
        digest = remembered_sha256(folder / WEIGHTS)
    except (UnreadableError, OSError) as error:
        raise CheckpointError(f"drafter {folder}: {EDGES} cannot be read ({error})") from error
    try:
        fitted = Fitted(
            _pairs(stored["pairs"], positive=1), _pairs(stored.get("coupled", {}), positive=2)
        )
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"drafter {folder}: {EDGES}: pairs must be, for each scorer and temperature, [a, b] "
            f"with a > 0, and coupled [temper, spread], both > 0 ({error})"
        ) from error
    if stored.get("weights_sha256") != digest:
        raise CheckpointError(
            f"drafter {folder}: {EDGES} was made for other weights; remove it or calibrate again"
        )
    return fitted


def _pairs(stored: Any, positive: int) -> Pairs:
    """positive: how many numbers of a pair must be, from the first."""
    pairs = {
        scorer: {float(t): _pair(pair, positive) for t, pair in by_temperature.items()}
        for scorer, by_temperature in stored.items()
    }
    if not all(0 <= t < math.inf for by_temperature in pairs.values() for t in by_temperature):
        raise ValueError("a temperature is negative or not finite")
    return pairs


def _pair(pair: Any, positive: int) -> tuple[float, float]:
    a, b = (float(x) for x in pair if not isinstance(x, str | bool))
    if not (math.isfinite(a) and math.isfinite(b) and min((a, b)[:positive]) > 0):
        raise ValueError(f"{pair} is no such pair")
    return a, b


def stored_edges(path: Path, folder: Path) -> dict[str, Any]:
    """The content of a file that `write_edges` wrote for the weights in `folder`; empty tables if
    there is none, or it was made for others.
    """
    empty: dict[str, Any] = {"pairs": {}, "judged": {}, "coupled": {}, "coupled_judged": {}}
    try:
        stored = read_object(path)
    except (UnreadableError, OSError):
        return empty
    fits = stored.get("weights_sha256") == remembered_sha256(folder / WEIGHTS)
    return empty | stored if fits else empty


def write_edges(path: Path, folder: Path, content: Mapping[str, Any]) -> None:
    """Write what was fitted to the drafter in `folder`: `pairs`, `coupled`, and what a report says
    of them.

    Loading the drafter reads `edges.json` in its folder. Raises RecordError.
    """
    kept = {key: value for key, value in content.items() if value or key == "pairs"}
    write_json(path, {**kept, "weights_sha256": remembered_sha256(folder / WEIGHTS)})
