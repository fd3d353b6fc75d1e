"""Weights & Biases as a mirror of the run folder: one W&B run per configuration, by default
offline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dartree_exp.config.schema import TrackerConfig
from dartree_exp.records import RoundRecord, SampleRecord
from dartree_exp.trackers.rows import (
    SAMPLE_COLUMNS,
    charted,
    histogram_bins,
    prompt_row,
    round_row,
    sample_row,
)
from dartree_exp.trackers.tracker import RunInfo

INIT_TIMEOUT, FINISH_TIMEOUT = 30.0, 120.0  # seconds; for an unreachable server


class WandbTracker:
    """Config, per-round and per-prompt metrics, summary, table of samples and acceptance histogram
    of one run.

    Args:
        config: project, entity and mode (offline | online | disabled).
        say: gets the message on how to upload an offline run.
    """

    def __init__(self, config: TrackerConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._run: Any = None
        self._samples: list[SampleRecord] = []
        self._rounds = 0

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Open the W&B run. Its files are in $WANDB_DIR, or in `wandb/` of the run folder."""
        import wandb  # slow to import

        self._run = wandb.init(
            project=self._config.project,
            entity=self._config.entity,
            mode=self._config.mode,  # type: ignore[arg-type]
            id=info.id,
            name=info.name,
            group=info.group,
            job_type=info.job_type,
            config=dict(config),
            dir=os.environ.get("WANDB_DIR") or str(info.folder),
            # else the second point of a sweep would log into the run of the first
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_stats=True,  # a sampling thread would disturb the timing
                init_timeout=INIT_TIMEOUT,
                finish_timeout=FINISH_TIMEOUT,
            ),
        )
        for group in ("prompt", "round", "train"):
            self._run.define_metric(f"{group}/index")
            self._run.define_metric(f"{group}/*", step_metric=f"{group}/index")

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """Log one history row per round, then one for the prompt."""
        if self._run is None:
            return
        for record in rounds:
            self._run.log(round_row(self._rounds, record))
            self._rounds += 1
        self._samples.append(sample)
        self._run.log(prompt_row(self._samples))

    def log_row(self, row: Mapping[str, float]) -> None:
        """Log one history row."""
        if self._run is not None:
            self._run.log(dict(row))

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Write summary, table and histogram and close the W&B run, with exit code 1 if there is no
        summary.
        """
        run, self._run = self._run, None
        if run is None:
            return
        try:
            if summary is not None:
                if self._samples:
                    run.log(self._media(summary))
                run.summary.update(charted(summary))
        finally:
            run.finish(exit_code=0 if summary is not None else 1)
        if self._config.mode == "offline":
            self._say(
                f"W&B run kept offline; upload it with: wandb sync {os.path.dirname(run.dir)}"
            )

    def _media(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """The table of samples, and the histogram of acceptance lengths if there was a round."""
        import numpy as np
        import wandb

        media: dict[str, Any] = {
            "samples": wandb.Table(list(SAMPLE_COLUMNS), list(map(sample_row, self._samples)))
        }
        if summary["acceptance_histogram"]:
            counts, edges = map(np.array, histogram_bins(summary["acceptance_histogram"]))
            media["acceptance_length"] = wandb.Histogram(np_histogram=(counts, edges))
        return media
