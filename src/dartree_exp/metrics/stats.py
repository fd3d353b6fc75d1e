"""Intervals: a seeded percentile bootstrap over prompts, paired by prompt to compare two runs.

The unit is the distinct prompt, not the turn or the round, because turns of a dialogue, rounds of
an answer and copies of a prompt are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dartree_exp.metrics.measures import (
    METRICS,
    Metric,
    prompt_sums,
    prompt_units,
    ratio,
    spread,
)
from dartree_exp.records.schema import SampleRecord

LEVEL, REPLICATES, SEED = 0.95, 5000, 0
# With five prompts, all differences have one sign by chance in 6 % of cases: too often for 95 %.
LEAST_PAIRS = 6
YES, NO, TOO_FEW, NOT_COMPARABLE = "yes", "no", "too few", "not comparable"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None if undefined. No interval for fewer than two prompts."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """As in summary.json."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Paired:
    """A difference or ratio of two runs over their common prompts.

    n: number of distinct prompts. mismatched: turns left out because they share an id but not the
    prompt. separable: the result of `separable`.
    """

    estimate: Estimate
    n: int
    mismatched: int
    separable: str


def estimate(samples: Iterable[SampleRecord], metric: Metric | str) -> Estimate:
    """A metric (of METRICS by name) with its 95 % interval over prompts."""
    metric = _metric(metric)
    return bootstrap(_table(prompt_sums(samples, metric)), metric.value)


def spread_estimate(samples: Sequence[SampleRecord], categories: Sequence[str]) -> Estimate:
    """`measures.spread`, with an interval if every category has two prompts: resamples in which a
    category is missing have no spread, so one prompt each would leave nothing to vary.
    """
    found = estimate(samples, spread(categories))
    parts = [[s for s in samples if s.category == category] for category in categories]
    fewest = min(len(prompt_sums(part, METRICS["tau_macro"])) for part in parts)
    return found if fewest > 1 else Estimate(found.value)


def bootstrap(table: np.ndarray, value: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    """Percentile bootstrap over the rows of a table.

    Args:
        table: float64 [P, C], each prompt's addends to the sums.
        value: sums [..., C] -> number [...].
    """
    if not len(table):
        return Estimate(None)
    return _interval(
        float(value(table.sum(0))), value(_weights(len(table)) @ table) if len(table) > 1 else None
    )


def separable(estimate: Estimate, n: int, *, none: float, comparable: bool = True) -> str:
    """Whether a paired number differs from `none`, "no difference"; used by all tables and files.

    Args:
        estimate: the difference or ratio with its interval.
        n: number of distinct prompts.
        none: 0 for a difference, 1 for a ratio.
        comparable: False for times that were not measured under the same conditions.

    Returns:
        YES if the interval excludes `none`, else NO; TOO_FEW for fewer than LEAST_PAIRS prompts;
        NOT_COMPARABLE.
    """
    if not comparable:
        return NOT_COMPARABLE
    if n < LEAST_PAIRS or estimate.low is None or estimate.high is None:
        return TOO_FEW
    return NO if estimate.low <= none <= estimate.high else YES


def paired_difference(
    run_a: Sequence[SampleRecord],
    run_b: Sequence[SampleRecord],
    metric: Metric | str,
    *,
    as_ratio: bool = False,
    comparable: bool = True,
) -> Paired:
    """`metric` of run A minus that of run B (or A / B), both resampled with the same prompts.

    Uses only turns that both runs decoded from the same prompt (by hash) and to which the metric
    applies in both. comparable: as in `separable`.
    """
    metric = _metric(metric)
    rows_a, rows_b = _by_turn(run_a, metric), _by_turn(run_b, metric)
    shared = [key for key in rows_a if key in rows_b]
    same = [key for key in shared if rows_a[key][0] == rows_b[key][0]]
    units = prompt_units(run_a)
    prompts = list(dict.fromkeys(units[id] for id, _ in same))
    place = {prompt: index for index, prompt in enumerate(prompts)}
    tables = []
    for rows in (rows_a, rows_b):
        width = len(rows[same[0]][1]) if same else 0
        table = np.zeros((len(prompts), width))
        for key in same:
            table[place[units[key[0]]]] += rows[key][1]
        tables.append(table)
    mismatched = len(shared) - len(same)
    none = 1.0 if as_ratio else 0.0
    if not prompts:
        nothing = Estimate(None)
        return Paired(
            nothing, 0, mismatched, separable(nothing, 0, none=none, comparable=comparable)
        )

    def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return ratio(a, b) if as_ratio else a - b

    a, b = tables
    replicates = None
    if len(prompts) > 1:
        weights = _weights(len(prompts))
        replicates = combine(metric.value(weights @ a), metric.value(weights @ b))
    result = _interval(float(combine(metric.value(a.sum(0)), metric.value(b.sum(0)))), replicates)
    answer = separable(result, len(prompts), none=none, comparable=comparable)
    return Paired(result, len(prompts), mismatched, answer)


def best_of(
    runs: Sequence[Sequence[SampleRecord]], metric: Metric | str, *, comparable: bool = True
) -> int | None:
    """Index of the run that is better than every other one: each paired difference is `separable`
    and positive. None if there is no such run, or fewer than two runs.
    """
    # Runs without the metric (plain decoding has no tau) are not compared.
    values = {
        i: v for i, samples in enumerate(runs) if (v := estimate(samples, metric).value) is not None
    }
    if len(runs) < 2 or not values:
        return None
    leader = max(values, key=values.__getitem__)
    for rival in values.keys() - {leader}:
        paired = paired_difference(runs[leader], runs[rival], metric, comparable=comparable)
        if paired.separable != YES or (paired.estimate.low or 0.0) <= 0:
            return None
    return leader


def _by_turn(
    samples: Iterable[SampleRecord], metric: Metric
) -> dict[tuple[str, int], tuple[str, np.ndarray]]:
    """(id, turn) -> (prompt hash, columns summed over repeats)."""
    rows: dict[tuple[str, int], tuple[str, np.ndarray]] = {}
    for sample in samples:
        columns = metric.columns(sample)
        if columns is not None:
            key = (sample.id, sample.turn)
            before = rows[key][1] if key in rows else 0.0
            rows[key] = (sample.prompt_sha256, before + np.asarray(columns, float))
    return rows


def _interval(value: float, replicates: np.ndarray | None) -> Estimate:
    if not np.isfinite(value):
        return Estimate(None)
    if replicates is None:
        return Estimate(value)
    # The metric is undefined for a resample that has no prompt with a round.
    defined = replicates[np.isfinite(replicates)]
    if not len(defined):
        return Estimate(value)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(defined, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


@lru_cache(maxsize=8)
def _weights(prompts: int) -> np.ndarray:
    """float64 [REPLICATES, P]: how often each resample drew each prompt. Depends only on P, so runs
    are paired.
    """
    draws = np.random.default_rng(SEED).integers(prompts, size=(REPLICATES, prompts))
    flat = draws + prompts * np.arange(REPLICATES)[:, None]
    return (
        np.bincount(flat.ravel(), minlength=REPLICATES * prompts)
        .reshape(REPLICATES, prompts)
        .astype(float)
    )


def _table(sums: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack(list(sums.values())) if sums else np.zeros((0, 1))


def _metric(metric: Metric | str) -> Metric:
    return METRICS[metric] if isinstance(metric, str) else metric
