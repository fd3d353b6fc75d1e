"""summary.json of a run: every metric with interval, overall and by category, and definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dartree_exp.metrics.clock import STAGES
from dartree_exp.metrics.measures import (
    METRICS,
    acceptance_histogram,
    counts,
    stage_milliseconds,
    stage_share,
    survival,
)
from dartree_exp.metrics.stats import LEVEL, REPLICATES, SEED, estimate
from dartree_exp.records.schema import SampleRecord

_SHARES = {stage: stage_share(stage) for stage in STAGES}
_MILLISECONDS = {stage: stage_milliseconds(stage) for stage in STAGES}


def summarise(samples: Sequence[SampleRecord], method: str) -> dict[str, Any]:
    """The content of summary.json. Every estimate is {value, low, high}; None if undefined, never
    NaN.
    """
    histogram = acceptance_histogram(samples)
    categories = dict.fromkeys(s.category for s in samples)
    return {
        "method": method,
        **_numbers(samples),
        "by_category": {c: _numbers([s for s in samples if s.category == c]) for c in categories},
        "exact": all(s.exact for s in samples),
        "rounds": sum(histogram.values()),
        "acceptance_histogram": {str(length): rounds for length, rounds in histogram.items()},
        "survival": survival(histogram),
        "definitions": {name: metric.definition for name, metric in METRICS.items()},
        "interval": {
            "level": LEVEL,
            "kind": "percentile bootstrap over prompts",
            "replicates": REPLICATES,
            "seed": SEED,
        },
    }


def _numbers(samples: Sequence[SampleRecord]) -> dict[str, Any]:
    return {
        **counts(samples),
        **{name: estimate(samples, metric).to_dict() for name, metric in METRICS.items()},
        "stages": {stage: estimate(samples, metric).to_dict() for stage, metric in _SHARES.items()},
        "stage_ms_per_round": {
            stage: estimate(samples, m).to_dict() for stage, m in _MILLISECONDS.items()
        },
    }
