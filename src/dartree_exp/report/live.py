"""The live line of a run: prompt n/N, tau so far, tokens per second, time left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console

from dartree_exp.console.progress_line import ProgressLine
from dartree_exp.metrics.measures import point
from dartree_exp.records import SampleRecord
from dartree_exp.report.table import NONE


class LiveLine(ProgressLine):
    """Shows progress between prompts.

    Args:
        total: samples of the whole run.
        console: where to write.
        done: samples of an earlier, resumed session.
        label: the name of the run.
        options: as `ProgressLine`.
    """

    def __init__(
        self,
        total: int,
        console: Console,
        done: Iterable[SampleRecord] = (),
        label: str = "",
        **options: Any,
    ) -> None:
        self._samples = list(done)
        super().__init__(total, console, len(self._samples), label, unit="prompt", **options)

    def update(self, sample: SampleRecord) -> None:
        """Count a finished sample and show the progress."""
        self._samples.append(sample)
        self.advance(len(self._samples))

    def status(self) -> str:
        tau, speed, speedup = (
            point(self._samples, name) for name in ("tau_macro", "tokens_per_second", "speedup")
        )
        parts = [
            f"tau {_number(tau, '.2f')}",
            f"{_number(speed, '.1f')} tok/s",
            f"{_number(speedup, '.2f')}× AR",
            super().status(),
        ]
        failed = sum(sample.error is not None for sample in self._samples)
        wrong = sum(sample.verdict == "wrong" for sample in self._samples)
        parts = [f"{wrong} WRONG"] * bool(wrong) + parts
        return "  ".join([*parts, f"{failed} failed"] if failed else parts)


def _number(value: float | None, style: str) -> str:
    return NONE if value is None else f"{value:{style}}"
