"""Weights & Biases as a mirror of the run folder: one W&B run per configuration, offline unless asked otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dartree_exp.config.schema import TrackerConfig
from dartree_exp.metrics import point
from dartree_exp.records import RoundRecord, SampleRecord
from dartree_exp.timing import STAGES
from dartree_exp.trackers.tracker import RunInfo

INIT_TIMEOUT, FINISH_TIMEOUT = 30.0, 120.0  # seconds; an unreachable server must not hold a finished run


class WandbTracker:
    """Config, per-round and per-prompt metrics, the summary and the acceptance histogram of one run.

    Args:
        config: project, entity and mode (offline | online | disabled).
        say: takes the line that tells how to upload an offline run.
    """

    def __init__(self, config: TrackerConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._run: Any = None
        self._samples: list[SampleRecord] = []
        self._rounds = 0

    def start(self, config: Mapping[str, Any], info: RunInfo) -> None:
        """Open the W&B run. Its files go to $WANDB_DIR, or to `wandb/` in the run folder."""
        import wandb  # a second to import, and needed by this tracker only

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
            reinit="create_new",  # without it the second point of a sweep would log into the first one's run
            settings=wandb.Settings(
                silent=True,
                console="off",  # the live line is not a log
                x_disable_stats=True,  # a sampling thread would take its share of the cores being timed
                init_timeout=INIT_TIMEOUT,
                finish_timeout=FINISH_TIMEOUT,
            ),
        )
        for group in ("prompt", "round"):
            self._run.define_metric(f"{group}/index")
            self._run.define_metric(f"{group}/*", step_metric=f"{group}/index")

    def log_sample(self, sample: SampleRecord, rounds: Sequence[RoundRecord] = ()) -> None:
        """One history row per round, then one for the prompt."""
        if self._run is None:
            return
        for record in rounds:
            self._run.log(_round_row(self._rounds, record))
            self._rounds += 1
        self._samples.append(sample)
        self._run.log(self._prompt_row(sample))

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Write the summary and the histogram and close the W&B run; exit code 1 where there is no summary."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            if summary is not None:
                if summary["acceptance_histogram"]:
                    run.log({"acceptance_length": _histogram(summary["acceptance_histogram"])})
                run.summary.update(dict(flatten(summary)))
        finally:
            run.finish(exit_code=0 if summary is not None else 1)
        if self._config.mode == "offline":
            self._say(f"W&B run kept offline; upload it with: wandb sync {os.path.dirname(run.dir)}")

    def _prompt_row(self, sample: SampleRecord) -> dict[str, Any]:
        names = ("tau_macro", "speedup", "tokens_per_second")
        own = {f"prompt/{name}": point([sample], name) for name in names}
        so_far = {f"prompt/{name}_so_far": point(self._samples, name) for name in names}
        counts = {
            "prompt/index": len(self._samples) - 1,
            "prompt/emitted": sample.emitted,
            "prompt/rounds": sample.rounds,
            "prompt/exact": int(sample.verdict == "exact"),
            "prompt/failed": int(sample.error is not None),
        }
        return {key: value for key, value in {**counts, **own, **so_far}.items() if value is not None}


def _round_row(index: int, record: RoundRecord) -> dict[str, Any]:
    return {
        "round/index": index,
        "round/tokens_advanced": record.tokens_advanced,
        "round/emitted": record.emitted,
        "round/tree_size": record.tree_size,
        "round/supertree_size": record.supertree_size,
        "round/tree_depth": record.tree_depth,
        **{f"round/{stage}_ms": 1e3 * record.time[stage] for stage in STAGES if stage in record.time},
    }


def _histogram(counts: Mapping[str, int]) -> Any:
    """A W&B histogram with one bin per acceptance length, from 1 to the longest seen."""
    import wandb

    lengths = range(1, max(map(int, counts)) + 1)
    edges = [length - 0.5 for length in (*lengths, lengths[-1] + 1)]
    return wandb.Histogram(np_histogram=([counts.get(str(length), 0) for length in lengths], edges))


def flatten(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """summary.json as flat keys: an estimate becomes `tau_macro`, `tau_macro_low`, `tau_macro_high`; others `a/b`.

    Undefined numbers, definitions and lists are left out: a chart can do nothing with them.
    """
    for key, value in summary.items():
        name = prefix + key
        if isinstance(value, Mapping) and set(value) == {"value", "low", "high"}:
            for part, end in (("value", ""), ("low", "_low"), ("high", "_high")):
                if value[part] is not None:
                    yield name + end, value[part]
        elif isinstance(value, Mapping):
            if key not in ("definitions", "interval", "acceptance_histogram"):
                yield from flatten(value, f"{name}/")
        elif value is not None and not isinstance(value, list):
            yield name, value
