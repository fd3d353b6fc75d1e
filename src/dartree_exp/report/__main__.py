"""`python -m dartree_exp.report <folders>`: tables of finished or running runs, from their files alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dartree_exp.errors import UserError
from dartree_exp.records import Run, find_runs
from dartree_exp.records.reader import is_run_folder
from dartree_exp.report.compare import comparison
from dartree_exp.report.tables import run_tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 where a folder could not be reported (the others are)."""
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.report",
        description="Rebuild the tables of run folders: table.md and table.csv in each, "
        "comparison.md and comparison.csv in a sweep folder.",
    )
    parser.add_argument("folders", nargs="+", type=Path, help="run folders or sweep folders")
    parser.add_argument("--baseline", help="run that differences are taken from: its name, method or folder name")
    options = parser.parse_args(arguments)

    console = Console()
    failed = False
    loose: list[Run] = []
    for folder in options.folders:
        try:
            runs, bad = _readable(folder)
            failed |= bad
            for run in runs:
                run_tables(run, console if len(runs) == 1 else None)
            if is_run_folder(folder):
                loose += runs
            elif len(runs) > 1:
                comparison(runs, console, options.baseline, output=folder)
        except UserError as error:
            failed = _complain(error)
    if len(loose) > 1:
        try:
            comparison(loose, console, options.baseline)
        except UserError as error:
            failed = _complain(error)
    return 2 if failed else 0


def _readable(folder: Path) -> tuple[list[Run], bool]:
    """The runs at `folder` whose records can be read, and whether some could not (they are named)."""
    good, bad = [], False
    for run in find_runs(folder):
        try:
            _ = run.status, run.config, run.environment, run.samples
            good.append(run)
        except UserError as error:
            bad = _complain(error)
    return good, bad


def _complain(error: UserError) -> bool:
    print(f"error: {error}", file=sys.stderr)
    return True


if __name__ == "__main__":
    sys.exit(main())
