"""`python -m dartree_exp.watch multirun/<sweep>`: shows a sweep while it runs, from another shell
or machine.

It only reads files, so it works with any launcher and can be stopped at any time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dartree_exp.console.closed_pipe import survive_closed_pipe
from dartree_exp.console.printable import printable, printable_line
from dartree_exp.errors import UserError
from dartree_exp.records.reader import Run, find_runs
from dartree_exp.records.schema import RecordError
from dartree_exp.report.labels import name_settings, read_settings
from dartree_exp.sweeps.outcomes import Plan, invocations, read_plan
from dartree_exp.sweeps.progress import progress, samples_on_disk


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 if the sweep does not exist."""
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.watch",
        description="Show the runs of a sweep: done, running, failed, time left. A terminal is "
        "updated until the sweep has ended or Ctrl-C; other output is printed once.",
    )
    parser.add_argument("sweep", type=Path, help="a sweep's folder")
    parser.add_argument(
        "--every",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time between updates (default 10)",
    )
    options = parser.parse_args(arguments)
    with survive_closed_pipe():
        return _watch(options.sweep, options.every)


def _watch(sweep: Path, every: float) -> int:
    console = Console()
    try:
        shown, active = overview(sweep)
        if not console.is_terminal:
            console.print(shown)
            return 0
        with Live(shown, console=console, auto_refresh=False) as live:
            while active:
                time.sleep(max(1.0, every))
                shown, active = overview(sweep)
                live.update(shown, refresh=True)
    except UserError as error:
        print(f"error: {printable_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def overview(sweep: Path) -> tuple[Group, bool]:
    """The page, and whether a process works in the sweep's folder.

    Raises RecordError if the folder is not a sweep's.
    """
    plans = {
        invocation: plan
        for invocation in invocations(sweep)
        if (plan := _living(invocation)) is not None
    }
    planned = {name: label for plan in plans.values() for name, label in plan.runs.items()}
    runs = [] if plans and not list(sweep.glob("*/status.json")) else find_runs(sweep)
    # Reads only the settings: parsing samples would disturb the timed runs.
    readable, damaged = _parted(runs)
    names, _ = name_settings(
        [str(run.config.get("method") or "–") for run in readable],
        [read_settings(run.config) for run in readable],
    )
    table = Table(title=Text(str(sweep)), title_justify="left")
    for column in ("folder", "run", "state", "prompts", "message"):
        table.add_column(column, overflow="fold")
    for run, name in zip(readable, names, strict=True):
        expected = run.status.get("prompts")
        prompts = f"{samples_on_disk(run)}/{expected}" if expected else "–"
        row = (
            run.path.name,
            name,
            run.state,
            prompts,
            run.lost or str(run.status.get("message", "")),
        )
        table.add_row(*(Text(printable(cell)) for cell in row))
    for name, reason in damaged.items():
        table.add_row(*(Text(printable(cell)) for cell in (name, "–", "UNREADABLE", "–", reason)))
    started = {run.path.name for run in runs}
    pending = {name: label for name, label in planned.items() if name not in started}
    for name, label in pending.items():
        table.add_row(*(Text(printable(cell)) for cell in (name, label, "PENDING", "–", "")))
    states = [
        f"{count} {state}"
        for state, count in sorted(Counter(run.state for run in readable).items())
    ]
    states += [f"{len(damaged)} UNREADABLE"] if damaged else []
    states += [f"{len(pending)} PENDING"] if pending else []
    alive = [line for line in map(_line, plans) if line is not None]
    return Group(
        table, Text(printable("\n".join([f"runs: {', '.join(states) or 'none yet'}", *alive])))
    ), bool(plans)


def _parted(runs: Sequence[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs whose status and settings can be read; the errors of the others by folder name."""
    readable, damaged = [], {}
    for run in runs:
        try:
            _ = run.state, run.config
            readable.append(run)
        except RecordError as error:
            damaged[run.path.name] = str(error)
    return readable, damaged


def _living(invocation: Path) -> Plan | None:
    """The plan of an invocation whose process is alive, else None."""
    try:
        plan = read_plan(invocation)
    except RecordError:
        return None
    return plan if plan is not None and plan.is_alive() else None


def _line(invocation: Path) -> str | None:
    """The progress of an invocation; None if it cannot be read."""
    try:
        return f"{invocation.name} {progress(invocation).line()}"
    except RecordError:
        return None
