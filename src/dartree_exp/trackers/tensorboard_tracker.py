"""TensorBoard as a mirror of the run folder: `tensorboard --logdir multirun/<sweep>`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from dartree_exp.records import RoundRecord, SampleRecord
from dartree_exp.trackers.rows import charted, histogram_bins, prompt_row, round_row
from dartree_exp.trackers.tracker import RunInfo

FOLDER = "tensorboard"


class TensorboardTracker:
    """Scalars per round and per prompt, the settings as text, the summary's numbers and the
    acceptance histogram.

    Event files are in `tensorboard/` of the run folder.
    """

    def __init__(self) -> None:
        self._writer: Any = None
        self._samples: list[SampleRecord] = []
        self._rounds = 0

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Open the event file. Raises ImportError if the extra `tensorboard` is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "tracker=tensorboard needs the extra: pip install 'dartree_exp[tensorboard]'"
            ) from error

        folder = info.folder / FOLDER
        shutil.rmtree(folder, ignore_errors=True)  # a resumed run is mirrored completely
        self._writer = SummaryWriter(str(folder))
        self._writer.add_text("config", f"```json\n{json.dumps(dict(config), indent=2)}\n```", 0)

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Log the numbers of each round and of the prompt, each over its own index."""
        if self._writer is None:
            return
        for record in rounds:
            self._add(round_row(self._rounds, record), self._rounds)
            self._rounds += 1
        self._samples.append(sample)
        self._add(prompt_row(self._samples), len(self._samples) - 1)
        self._writer.flush()

    def log_row(self, row: Mapping[str, float]) -> None:
        """Log one point per number, over `train/index`."""
        if self._writer is not None:
            self._add(row, int(row["train/index"]))
            self._writer.flush()

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Write the summary's numbers and the histogram and close the event file."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        with writer:
            if summary is None:
                return
            for name, value in charted(summary).items():
                if isinstance(value, int | float):
                    writer.add_scalar(f"summary/{name}", value, 0)
            if summary.get("acceptance_histogram"):
                _add_histogram(writer, *histogram_bins(summary["acceptance_histogram"]))

    def _add(self, row: Mapping[str, float], step: int) -> None:
        for name, value in row.items():
            if not name.endswith("/index"):
                self._writer.add_scalar(name, value, step)


def _add_histogram(writer: Any, counts: list[int], edges: list[float]) -> None:
    lengths = range(1, len(counts) + 1)
    writer.add_histogram_raw(
        "acceptance_length",
        min=1,
        max=len(counts),
        num=sum(counts),
        sum=sum(n * length for n, length in zip(counts, lengths, strict=True)),
        sum_squares=sum(n * length**2 for n, length in zip(counts, lengths, strict=True)),
        bucket_limits=edges[1:],
        bucket_counts=counts,
        global_step=0,
    )
