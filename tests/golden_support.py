"""Golden vectors (tests/golden/README.md): the repository's subset, and the full folder, if any
(`DARTREE_SHARED`, or `shared/` next to the project). Tests run every case found in the folders.
"""

import filecmp
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SUBSET = Path(__file__).with_name("golden")
SHARED = Path(os.environ.get("DARTREE_SHARED") or Path(__file__).resolve().parents[2] / "shared")
MODEL = "golden_model"  # next to golden/ in the full folder


@dataclass(frozen=True)
class GoldenCase:
    """<family>/<case>.json, <case>.safetensors and the checkpoints that the JSON names."""

    file: Path

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def spec(self) -> dict[str, Any]:
        return json.loads(self.file.read_text(encoding="utf-8"))

    @property
    def arrays(self) -> dict[str, Any]:
        from safetensors.torch import load_file

        return load_file(self.file.with_suffix(".safetensors"))

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.spec, self.arrays

    @property
    def folders(self) -> dict[str, Path]:
        """The checkpoint folders of the case: `draft`, in whole decodes `target` too."""
        spec = self.spec
        named = spec.get("checkpoints") or {"draft": spec.get("checkpoint", "")}
        return {part: self.file.parent / name.split("/")[0] for part, name in named.items() if name}

    @property
    def checkpoint(self) -> Path:
        return self.folders["draft"]

    def files(self) -> list[Path]:
        inside = [file for folder in self.folders.values() for file in folder.iterdir()]
        tensors = self.file.with_suffix(".safetensors")
        return [self.file, *[tensors] * tensors.exists(), *sorted(inside)]

    def equals(self, other: "GoldenCase") -> bool:
        """Byte for byte."""
        mine, theirs = self.files(), other.files()
        return len(mine) == len(theirs) and all(
            a.name == b.name and filecmp.cmp(a, b, shallow=False)
            for a, b in zip(mine, theirs, strict=True)
        )


Wanted = Callable[[GoldenCase], bool]


def full_folder(family: str) -> Path:
    return SHARED / family if family == MODEL else SHARED / "golden" / family


def cases_in(folder: Path, wanted: Wanted = lambda case: True) -> list[GoldenCase]:
    return [case for file in sorted(folder.glob("*.json")) if wanted(case := GoldenCase(file))]


def carried(family: str, wanted: Wanted = lambda case: True) -> list[GoldenCase]:
    """The cases of the repository's subset; at least one, or every golden test is void."""
    found = cases_in(SUBSET / family, wanted)
    assert found, f"{SUBSET / family} holds no case that this test can use"
    return found


def golden_cases(family: str, wanted: Wanted = lambda case: True) -> list[Any]:
    """Parameters for pytest: the subset's cases, and those of the full folder that differ."""
    here = carried(family, wanted)
    there = [
        case
        for case in cases_in(full_folder(family), wanted)
        if not any(case.name == mine.name and case.equals(mine) for mine in here)
    ]
    return [
        pytest.param(case, id=f"{place}-{case.name}")
        for place, cases in (("subset", here), ("full", there))
        for case in cases
    ]


def missing() -> str | None:
    """What is wrong with the full folder, if anything."""
    if not any((SHARED / "golden").glob("*/*.json")):
        return f"{SHARED} holds no golden cases (golden/<family>/<case>.json)"
    return None


def required() -> bool:
    """Whether the full folder must be there: somebody named it, or CI runs."""
    return bool(os.environ.get("DARTREE_SHARED") or os.environ.get("DARTREE_REQUIRE_SHARED"))
