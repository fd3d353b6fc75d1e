"""`python -m dartree_exp.watch multirun/<sweep>`: a sweep while it runs, from another shell or machine.

Reads files only, so it can watch a sweep on any launcher and can be stopped at any time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dartree_exp.errors import UserError
from dartree_exp.outcomes import invocations, read_plan
from dartree_exp.progress import progress, samples_on_disk
from dartree_exp.records.reader import find_runs
from dartree_exp.records.schema import RecordError
from dartree_exp.terminal import printable, printable_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 where there is no such sweep."""
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.watch",
        description="Show the runs of a sweep: done, running, failed, time left. On a terminal again and again "
        "until the sweep has ended or Ctrl-C; elsewhere once.",
    )
    parser.add_argument("sweep", type=Path, help="a sweep's folder")
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="time between looks (default 10)")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        shown, active = overview(options.sweep)
        if not console.is_terminal:
            console.print(shown)
            return 0
        with Live(shown, console=console, auto_refresh=False) as live:
            while active:
                time.sleep(max(1.0, options.every))
                shown, active = overview(options.sweep)
                live.update(shown, refresh=True)
    except UserError as error:
        print(f"error: {printable_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def overview(sweep: Path) -> tuple[Group, bool]:
    """The page, and whether somebody works in the sweep's folder.

    Raises RecordError where the folder is none.
    """
    alive = [line for line in map(_line, invocations(sweep)) if line is not None]
    runs = [] if alive and not list(sweep.glob("*/status.json")) else find_runs(sweep)
    table = Table(title=Text(str(sweep)), title_justify="left")
    for column in ("run", "method", "state", "prompts", "message"):
        table.add_column(column, overflow="fold")
    for run in runs:
        expected = run.status.get("prompts")
        prompts = f"{samples_on_disk(run)}/{expected}" if expected else "–"
        method = str(run.config.get("method") or "–")
        row = (run.path.name, method, run.state, prompts, str(run.status.get("message", "")))
        table.add_row(*(Text(printable(cell)) for cell in row))
    states = ", ".join(f"{sum(run.state == s for run in runs)} {s}" for s in sorted({run.state for run in runs}))
    return Group(table, Text(printable("\n".join([f"runs: {states or 'none yet'}", *alive])))), bool(alive)


def _line(invocation: Path) -> str | None:
    """Where an invocation stands; None for one that is gone, maybe in this very moment."""
    try:
        plan = read_plan(invocation)
        return f"{invocation.name} {progress(invocation).line()}" if plan is not None and plan.is_alive() else None
    except RecordError:
        return None


if __name__ == "__main__":
    sys.exit(main())
