"""Metrics of a set of samples: pure functions of records, each with its definition.

Every metric is a ratio of sums over turns: `columns` gives a turn's addends, `value` the metric for
given sums. `stats.py` resamples prompts and calls `value` on the resampled sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dartree_exp.records.schema import VERDICTS, SampleRecord


@dataclass(frozen=True)
class Metric:
    """One named number.

    Attributes:
        name: key in summary.json.
        definition: one line for footers.
        columns: turn -> its addends to the C sums, or None if the metric does not apply to it.
        value: sums [..., C] -> the number [...]; NaN if undefined (no round, no token).
    """

    name: str
    definition: str
    columns: Callable[[SampleRecord], tuple[float, ...] | None]
    value: Callable[[np.ndarray], np.ndarray]


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Elementwise quotient; NaN where the denominator is not positive."""
    numerator, denominator = np.broadcast_arrays(
        np.asarray(numerator, float), np.asarray(denominator, float)
    )
    return np.divide(
        numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0
    )


def _quotient(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 0], sums[..., 1])


def _double_quotient(sums: np.ndarray) -> np.ndarray:
    return ratio(ratio(sums[..., 0], sums[..., 1]), ratio(sums[..., 2], sums[..., 3]))


def _per_round(
    count: Callable[[SampleRecord], float],
) -> Callable[[SampleRecord], tuple[float, ...] | None]:
    """Sums of `count` and of rounds, over turns with a round (a fallback or a one-token answer has
    none).
    """
    return lambda s: (count(s), s.rounds) if s.error is None and s.rounds else None


def _tau_macro(s: SampleRecord) -> tuple[float, ...] | None:
    return (sum(s.acceptance_lengths) / s.rounds, 1) if s.error is None and s.rounds else None


def _verified(s: SampleRecord) -> tuple[float, ...] | None:
    if s.error is not None or s.verified is None or not s.rounds:
        return None
    return s.verified, s.rounds


def _seconds_and_tokens(s: SampleRecord) -> tuple[float, ...] | None:
    """AR's decode seconds and tokens after the first, then the method's."""
    if s.error is not None or s.ar is None:
        return None
    return s.ar["decode"], s.ar["emitted"] - 1, s.time["decode"], s.emitted - 1


def _seconds_per_token(s: SampleRecord) -> tuple[float, ...] | None:
    """AR's and the method's decode seconds per emitted token, including the first, each with a
    count of 1.
    """
    if s.error is not None or s.ar is None or not s.emitted or not s.ar["emitted"]:
        return None
    return s.ar["decode"] / s.ar["emitted"], 1, s.time["decode"] / s.emitted, 1


def _own_speed(s: SampleRecord) -> tuple[float, ...] | None:
    return (s.emitted - 1, s.time["decode"]) if s.error is None else None


def _ar_speed(s: SampleRecord) -> tuple[float, ...] | None:
    return (s.ar["emitted"] - 1, s.ar["decode"]) if s.error is None and s.ar is not None else None


def stage_share(stage: str) -> Metric:
    """Share of `stage` in the decode seconds, over turns decoded by the method itself."""

    def columns(s: SampleRecord) -> tuple[float, ...] | None:
        return (s.time.get(stage, 0.0), s.time["decode"]) if s.error is None and s.rounds else None

    return Metric(f"stages.{stage}", f"{stage} seconds / decode seconds", columns, _quotient)


def stage_milliseconds(stage: str) -> Metric:
    """Milliseconds of `stage` per round."""
    columns = _per_round(lambda s: 1e3 * s.time.get(stage, 0.0))
    return Metric(
        f"stage_ms_per_round.{stage}", f"{stage} milliseconds per round", columns, _quotient
    )


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "tau_macro",
            "mean over turns of the turn's mean tokens advanced per round, bonus token included "
            "(the papers' tau)",
            _tau_macro,
            _quotient,
        ),
        Metric(
            "tau_micro",
            "tokens advanced / rounds, all turns together, bonus token included",
            _per_round(lambda s: sum(s.acceptance_lengths)),
            _quotient,
        ),
        Metric(
            "drafts_per_round",
            "accepted drafts / rounds, bonus token not counted",
            _per_round(lambda s: sum(s.acceptance_lengths) - s.rounds),
            _quotient,
        ),
        Metric(
            "emitted_per_round",
            "tokens that reached the output / rounds: nothing after a stop or past the cap",
            _per_round(lambda s: sum(s.emitted_per_round_counts)),
            _quotient,
        ),
        Metric(
            "verified_per_round",
            "drafts that the target verified / rounds, the root not counted",
            _verified,
            _quotient,
        ),
        Metric(
            "speedup",
            "AR decode seconds per token after the first, summed over prompts, / the method's; "
            "prompts that fell back to AR included",
            _seconds_and_tokens,
            _double_quotient,
        ),
        Metric(
            "speedup_macro",
            "mean over turns of AR's decode seconds per token, first one counted, / the method's "
            "(the papers' form)",
            _seconds_per_token,
            _double_quotient,
        ),
        Metric(
            "ms_per_round",
            "decode milliseconds / rounds, over turns that had a round",
            _per_round(lambda s: 1e3 * s.time["decode"]),
            _quotient,
        ),
        Metric(
            "tokens_per_second", "tokens after the first / decode seconds", _own_speed, _quotient
        ),
        Metric("ar_tokens_per_second", "the same for lean AR", _ar_speed, _quotient),
    )
}


def spread(categories: Iterable[str]) -> Metric:
    """The standard deviation of tau macro over these categories, which are all there are: the mean
    squared distance is over their number.
    """
    places = {category: 2 * place for place, category in enumerate(categories)}

    def columns(s: SampleRecord) -> tuple[float, ...] | None:
        own = _tau_macro(s)
        if own is None or s.category not in places:
            return None
        sums = [0.0] * (2 * len(places))
        sums[places[s.category] : places[s.category] + 2] = own
        return tuple(sums)

    def value(sums: np.ndarray) -> np.ndarray:
        return np.asarray(ratio(sums[..., ::2], sums[..., 1::2]).std(-1))

    return Metric("spread", "standard deviation of tau macro over the categories", columns, value)


def prompt_units(samples: Iterable[SampleRecord]) -> dict[str, str]:
    """Prompt id -> hash of its rendered first turn, the unit of the bootstrap and of counts.

    Copies of a prompt under other ids are one unit, because they are not independent.
    """
    first: dict[str, SampleRecord] = {}
    for sample in samples:
        if sample.id not in first or sample.turn < first[sample.id].turn:
            first[sample.id] = sample
    return {id: sample.prompt_sha256 for id, sample in first.items()}


def prompt_sums(samples: Iterable[SampleRecord], metric: Metric) -> dict[str, np.ndarray]:
    """float64 [C] sums of the metric's columns per distinct prompt, over turns, repeats and copies,
    without turns to which the metric does not apply.
    """
    samples = list(samples)
    units = prompt_units(samples)
    sums: dict[str, np.ndarray] = {}
    for sample in samples:
        columns = metric.columns(sample)
        if columns is not None:
            unit = units[sample.id]
            sums[unit] = sums.get(unit, 0.0) + np.asarray(columns, float)
    return sums


def point(samples: Iterable[SampleRecord], metric: Metric | str) -> float | None:
    """The metric without interval; None if undefined."""
    metric = METRICS[metric] if isinstance(metric, str) else metric
    sums = list(prompt_sums(samples, metric).values())
    value = float(metric.value(np.sum(sums, axis=0))) if sums else np.nan
    return value if np.isfinite(value) else None


def counts(samples: Sequence[SampleRecord]) -> dict[str, int | dict[str, int]]:
    """Counts of prompts, turns, failures and verdicts.

    `n`: distinct prompts with at least one turn that did not fail. `copies`: further ids of these
    prompts. `turns`: turns of all of them. `failed`: turns with an error, excluded from all other
    numbers. `fallbacks`: turns decoded by AR because the drafter could not take them. `degenerate`:
    turns with a loop. `capped`: turns that ended at the length cap. `verdicts`: of the lossless
    check.
    """
    good = [s for s in samples if s.error is None]
    units = prompt_units(samples)
    ids = {s.id for s in good}
    n = len({units[id] for id in ids})
    verdicts = Counter(s.verdict for s in good)
    return {
        "n": n,
        "copies": len(ids) - n,
        "turns": len(good),
        "failed": len(samples) - len(good),
        "fallbacks": sum(s.fallback is not None for s in good),
        "degenerate": sum(s.degenerate for s in good),
        "capped": sum(s.finish == "length" for s in good),
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
    }


def acceptance_histogram(samples: Iterable[SampleRecord]) -> dict[int, int]:
    """{acceptance length: rounds}, ascending."""
    histogram = Counter(
        length for s in samples if s.error is None for length in s.acceptance_lengths
    )
    return dict(sorted(histogram.items()))


def survival(histogram: dict[int, int]) -> list[float]:
    """Pr(L >= d) of the acceptance length L for d = 1, 2, ... up to the maximum; [] without
    rounds.
    """
    rounds = sum(histogram.values())
    return [
        sum(n for length, n in histogram.items() if length >= d) / rounds
        for d in range(1, max(histogram, default=0) + 1)
    ]


def is_degenerate(ids: Sequence[int]) -> bool:
    """Whether an output has a loop, which any drafter predicts and which raises every tau.

    True if a block of at most 64 tokens is repeated at least three times over at least 32 tokens,
    or if fewer than a third of the 4-grams of 64 or more tokens are distinct (loops with a changing
    number).
    """
    tokens = np.asarray(ids)
    for period in range(1, min(64, len(tokens) // 3) + 1):
        breaks = np.flatnonzero(tokens[period:] != tokens[:-period])
        longest = int(np.diff(np.concatenate(([-1], breaks, [len(tokens) - period]))).max()) - 1
        if longest + period >= max(3 * period, 32):
            return True
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return len(ids) >= 64 and 3 * len(set(grams)) < len(grams)
