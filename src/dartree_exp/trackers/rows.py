"""The rows sent to trackers, for a round, a prompt and a summary; the same for all trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartree_exp.metrics.clock import STAGES
from dartree_exp.metrics.measures import point
from dartree_exp.records import RoundRecord, SampleRecord
from dartree_exp.records.flat import flatten
from dartree_exp.records.schema import UNJUDGED

_NUMBERS = ("tau_macro", "speedup", "tokens_per_second")
_NOT_CHARTED = {"definitions", "interval", "acceptance_histogram"}
_ENDS = {"value": "", "low": "_low", "high": "_high"}
"""Suffixes for the parts of an estimate."""

SAMPLE_COLUMNS = (
    *(
        "id",
        "category",
        "turn",
        "repeat",
        "verdict",
        "finish",
        "emitted",
        "rounds",
        "tau",
        "speedup",
    ),
    *("degenerate", "fallback", "error", "text"),
)


def round_row(index: int, record: RoundRecord) -> dict[str, float]:
    """The numbers of one round. `round/index` counts all rounds of the run."""
    return {
        "round/index": index,
        "round/tokens_advanced": record.tokens_advanced,
        "round/emitted": record.emitted,
        "round/tree_size": record.tree_size,
        "round/supertree_size": record.supertree_size,
        "round/tree_depth": record.tree_depth,
        **{
            f"round/{stage}_ms": 1e3 * record.time[stage]
            for stage in STAGES
            if stage in record.time
        },
    }


def prompt_row(samples: Sequence[SampleRecord]) -> dict[str, float]:
    """The numbers of the last sample, and those of all samples so far."""
    sample = samples[-1]
    own = {f"prompt/{name}": point([sample], name) for name in _NUMBERS}
    so_far = {f"prompt/{name}_so_far": point(samples, name) for name in _NUMBERS}
    counts = {
        "prompt/index": len(samples) - 1,
        "prompt/emitted": sample.emitted,
        "prompt/rounds": sample.rounds,
        "prompt/exact": None if sample.verdict == UNJUDGED else int(sample.verdict == "exact"),
        "prompt/failed": int(sample.error is not None),
    }
    return {key: value for key, value in {**counts, **own, **so_far}.items() if value is not None}


def sample_row(sample: SampleRecord) -> list[object]:
    """One row of the table of samples, in the order of SAMPLE_COLUMNS."""
    return [
        *(sample.id, sample.category, sample.turn, sample.repeat, sample.verdict, sample.finish),
        *(sample.emitted, sample.rounds, point([sample], "tau_macro"), point([sample], "speedup")),
        *(
            sample.degenerate,
            sample.fallback,
            None if sample.error is None else sample.error["message"],
            sample.text,
        ),
    ]


def histogram_bins(counts: Mapping[str, int]) -> tuple[list[int], list[float]]:
    """Counts and bin edges of the acceptance lengths, one bin per length from 1 to the maximum."""
    lengths = range(1, max(map(int, counts)) + 1)
    return [counts.get(str(length), 0) for length in lengths], [
        length - 0.5 for length in (*lengths, lengths[-1] + 1)
    ]


def charted(summary: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json with flat keys: an estimate becomes `tau_macro`, `tau_macro_low`,
    `tau_macro_high`; other keys are `a/b`.

    Undefined numbers, definitions and lists are left out, because they cannot be charted.
    """
    found = {}
    for name, value in flatten(summary, "/"):
        above, _, last = name.rpartition("/")
        if value is None or isinstance(value, list) or {*above.split("/")} & _NOT_CHARTED:
            continue
        found[above + _ENDS[last] if above and last in _ENDS else name] = value
    return found
