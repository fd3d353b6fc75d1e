"""Rows of a data set: shipped with the package, from a local file or folder, or from the hub."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartree_exp.errors import UserError

if TYPE_CHECKING:
    from dartree_exp.config.schema import BenchmarkConfig

Row = dict[str, Any]


def load_rows(config: BenchmarkConfig) -> tuple[str, list[Row]]:
    """Where the rows come from (for messages) and the rows in the data set's order.

    `benchmark.path` wins over the hub. Raises UserError for a missing file, a line that is not a JSON object, a hub
    that gives nothing, or no rows at all.
    """
    if config.path is not None:
        path = _locate(config)
        source, rows = str(path), _read(path)
    elif config.dataset is not None:
        source, rows = config.dataset, _from_hub(config)
    else:
        resource = files("dartree_exp.prompts") / f"{config.name}.jsonl"
        if not resource.is_file():
            raise UserError(
                f"benchmark.name={config.name}: not shipped; give benchmark.path=<file> or benchmark.dataset"
            )
        source, rows = f"{config.name}.jsonl", list(_parse(resource.read_text(encoding="utf-8"), resource.name))
    if not rows:
        raise UserError(f"benchmark={config.name}: {source} has no rows")
    return source, rows


def _locate(config: BenchmarkConfig) -> Path:
    """The file of a path: itself, or in a folder the benchmark's usual file, also under a folder of its name."""
    assert config.path is not None
    path = Path(config.path).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"benchmark.path={config.path}: no such file or folder")
    names = [*config.files, f"{config.name}.jsonl"]
    for folder in (path, path / config.name):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise UserError(
        f"benchmark.path={config.path}: found none of {', '.join(names)} there or in {config.name}/; give the file"
    )


def _read(path: Path) -> list[Row]:
    """A .jsonl file, a .json file that holds a list, either also gzipped (.gz)."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if path.name.removesuffix(".gz").endswith(".json"):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise UserError(f"{path}: not JSON: {error}") from error
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{path}: not a list of JSON objects")
        return rows
    return list(_parse(text, str(path)))


def _parse(text: str, source: str) -> Iterator[Row]:
    # Not splitlines: texts may hold U+2028 and the like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{source}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f"{source}, line {number}: not a JSON object")
        yield row


def _from_hub(config: BenchmarkConfig) -> list[Row]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        return [dict(row) for row in load_dataset(config.dataset, config.subset, split=config.split)]
    except (OSError, ValueError, DatasetsError) as error:  # offline, unknown, gated, no such split
        raise UserError(
            f"benchmark={config.name}: the hub gave no {config.dataset} ({type(error).__name__}); download it where the "
            "hub is reachable and give benchmark.path=<file or folder>"
        ) from error
