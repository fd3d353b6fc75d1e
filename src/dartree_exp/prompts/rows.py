"""Rows of a data set: shipped with the package, from a local file or folder, or from the hub."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from dartree_exp.errors import UserError
from dartree_exp.models.hub import offline_unless_reachable
from dartree_exp.prompts.files import Row, parse_rows, read_rows
from dartree_exp.records.reading import user_path

if TYPE_CHECKING:
    from dartree_exp.config.schema import BenchmarkConfig


def load_rows(config: BenchmarkConfig) -> tuple[str, list[Row]]:
    """The source of the rows (for messages) and the rows in the data set's order.

    `benchmark.path` takes precedence over the hub. Raises UserError for a missing or damaged file,
    a data set that the hub does not provide, or no rows.
    """
    if config.path is not None:
        path = locate(config)
        source, rows = str(path), read_rows(path)
    elif config.dataset is not None:
        source, rows = config.dataset, _from_hub(config)
    else:
        resource = files("dartree_exp.prompts") / f"{config.name}.jsonl"
        if not resource.is_file():
            raise UserError(
                f"benchmark.name={config.name}: not shipped; set benchmark.path=<file> or "
                "benchmark.dataset"
            )
        source, rows = f"{config.name}.jsonl", parse_rows(resource.read_bytes(), resource.name)
    if not rows:
        raise UserError(f"benchmark={config.name}: {source} has no rows")
    return source, rows


def locate(config: BenchmarkConfig) -> Path:
    """The file of `benchmark.path`: itself, or in a folder (or its subfolder named like the
    benchmark) one of `benchmark.files`. Raises UserError.
    """
    assert config.path is not None
    path = user_path(config.path)
    if os.path.isfile(path):
        return path
    if not os.path.isdir(path):
        raise UserError(f"benchmark.path={config.path}: no such file or folder")
    names = [*config.files, f"{config.name}.jsonl"]
    for folder in (path, path / config.name):
        for name in names:
            if os.path.isfile(folder / name):
                return folder / name
    raise UserError(
        f"benchmark.path={config.path}: none of {', '.join(names)} found there or in "
        f"{config.name}/; set it to a file"
    )


def _from_hub(config: BenchmarkConfig) -> list[Row]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        with offline_unless_reachable():
            return [
                dict(row) for row in load_dataset(config.dataset, config.subset, split=config.split)
            ]
    except (OSError, ValueError, DatasetsError) as error:  # offline, unknown, gated, no such split
        raise UserError(
            f"benchmark={config.name}: {config.dataset} is not available from the hub "
            f"({type(error).__name__}); download it on another machine and set "
            "benchmark.path=<file or folder>"
        ) from error
