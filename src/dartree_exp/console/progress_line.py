"""The progress line of a run: redrawn on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from dartree_exp.console.printable import duration, printable


class ProgressLine:
    """The number of units done out of `total`, and `status()`; a context manager.

    On a terminal, one line is redrawn by `advance`; a redrawing thread would disturb the timed
    work. Elsewhere (a log file, a CI job), plain lines are printed, at most one every `every`
    seconds, always including the first and the last one.

    Args:
        total: units of the whole run.
        console: where to write.
        done: units done by earlier sessions.
        label: name of the run.
        unit: name of the unit, for plain lines.
        every: seconds between plain lines.
        now: a monotonic clock in seconds; tests pass a fake.
    """

    def __init__(
        self,
        total: int,
        console: Console,
        done: int = 0,
        label: str = "",
        *,
        unit: str,
        every: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._console, self._every, self._now = total, console, every, now
        self._label, self._unit = printable(label), unit
        self._done = self._resumed = done
        self._begin = now()
        self._printed: float | None = None
        self._progress: Progress | None = None

    def status(self) -> str:
        """The text after the count."""
        return f"{self.left()} left"

    def advance(self, done: int) -> None:
        """Show the number of units done."""
        self._done = done
        if self._progress is not None:
            self._progress.update(self._task, completed=done, status=self.status())
            self._progress.refresh()
            return
        now = self._now()
        last = done >= self._total
        if self._printed is None or last or now - self._printed >= self._every:
            self._printed = now
            line = f"{self._label} {self._unit} {done}/{self._total}  {self.status()}".strip()
            self._console.print(Text(line), soft_wrap=True)

    def say(self, message: str) -> None:
        """Print a permanent message above the line."""
        self._console.print(Text(printable(message)), soft_wrap=True)

    def left(self) -> str:
        """Remaining time at the speed of this session."""
        finished = self._done - self._resumed
        if finished <= 0:
            return "–"
        seconds = (self._now() - self._begin) / finished * max(0, self._total - self._done)
        return duration(seconds)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[status]}", markup=False),
                console=self._console,
                auto_refresh=False,
            )
            self._task = self._progress.add_task(
                self._label, total=self._total, completed=self._resumed, status=self.status()
            )
            self._progress.start()
            self._progress.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
