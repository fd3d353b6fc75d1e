"""The live line of a run: prompt n/N, tau so far, tokens per second, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from dartree_exp.console.printable import printable
from dartree_exp.metrics.measures import point
from dartree_exp.records import SampleRecord
from dartree_exp.report.table import NONE


class LiveLine:
    """Shows progress between prompts; a context manager.

    On a terminal one line is redrawn after every prompt, and only then: a redrawing thread would
    take its share of the cores from what is being timed. Elsewhere (a log file, a CI job) plain
    lines are printed, at most one every `every` seconds, the first and the last one always.

    Args:
        total: samples of the whole run.
        console: where to write; its `is_terminal` decides the form.
        done: samples of an earlier, resumed session.
        label: what is being run.
        every: seconds between plain lines.
        now: a monotonic clock in seconds; tests pass a fake.
    """

    def __init__(
        self,
        total: int,
        console: Console,
        done: Iterable[SampleRecord] = (),
        label: str = "",
        every: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._console, self._every, self._now = total, console, every, now
        self._label = label = printable(label)
        self._samples = list(done)
        self._resumed = len(self._samples)
        self._begin = now()
        self._printed: float | None = None
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[status]}", markup=False),
                console=console,
                auto_refresh=False,
            )
            self._task = self._progress.add_task(
                label, total=total, completed=self._resumed, status=self._status()
            )

    def update(self, sample: SampleRecord) -> None:
        """Count a finished sample and show where the run stands."""
        self._samples.append(sample)
        if self._progress is not None:
            self._progress.update(self._task, completed=len(self._samples), status=self._status())
            self._progress.refresh()
            return
        now = self._now()
        last = len(self._samples) >= self._total
        if self._printed is None or last or now - self._printed >= self._every:
            self._printed = now
            line = (
                f"{self._label} prompt {len(self._samples)}/{self._total}  {self._status()}".strip()
            )
            self._console.print(Text(line), soft_wrap=True)

    def say(self, message: str) -> None:
        """Print a message that stays, above the line: a fallback, a near tie, a failed sample."""
        self._console.print(Text(printable(message)), soft_wrap=True)

    def __enter__(self) -> Self:
        if self._progress is not None:
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

    def _status(self) -> str:
        tau, speed, speedup = (
            point(self._samples, name) for name in ("tau_macro", "tokens_per_second", "speedup")
        )
        parts = [
            f"tau {_number(tau, '.2f')}",
            f"{_number(speed, '.1f')} tok/s",
            f"{_number(speedup, '.2f')}× AR",
            f"{self._left()} left",
        ]
        failed = sum(sample.error is not None for sample in self._samples)
        wrong = sum(sample.verdict == "wrong" for sample in self._samples)
        parts = [f"{wrong} WRONG"] * bool(wrong) + parts
        return "  ".join([*parts, f"{failed} failed"] if failed else parts)

    def _left(self) -> str:
        finished = len(self._samples) - self._resumed
        if not finished:
            return NONE
        seconds = (self._now() - self._begin) / finished * max(0, self._total - len(self._samples))
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _number(value: float | None, style: str) -> str:
    return NONE if value is None else f"{value:{style}}"
