"""The records of a decoded prompt: one line per sample and one per round. All times are seconds.

Trees are recorded separately (`records/trees.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

from dartree_exp.errors import UserError
from dartree_exp.records.shape import check, field_checks

UNJUDGED = "unjudged"
"""The verdict of an output whose ids differ from plain decoding's by design."""
VERDICTS = ("exact", "near_tie", "wrong", UNJUDGED)
FINISHES = ("eos", "stop_id", "stop_string", "length")

# Types of the keys of `verdict_detail` that are checked; `verify/lossless.py` may add more keys.
_DETAIL = {
    **{"index": check(int | None), "flips": check(int | None), "reason": check(str | None)},
    **{key: check(float | None) for key in ("gap", "gap_median", "gap_max", "tolerance")},
}


class RecordError(UserError):
    """A record or run folder that cannot be written, read or trusted."""


class Line:
    """Base of the records: conversion to and from the dict of one JSON line."""

    def to_dict(self) -> dict[str, Any]:
        """Shallow dict of all fields, in their order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> Self:
        """The record of a parsed line. Raises RecordError for unknown or missing fields and for
        values of the wrong type.
        """
        known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(line) - set(known))
        missing = [
            name
            for name, f in known.items()
            if name not in line and f.default is MISSING and f.default_factory is MISSING
        ]
        if unknown or missing:
            parts = [f"unknown {', '.join(unknown)}"] * bool(unknown) + [
                f"missing {', '.join(missing)}"
            ] * bool(missing)
            raise RecordError(f"{cls.__name__} of another version: {'; '.join(parts)}")
        for name, fits in field_checks(cls).items():  # type: ignore[arg-type]
            if name in line and not fits(line[name]):
                raise RecordError(f"{cls.__name__}: {name} cannot be {str(line[name])[:80]!r}")
        return cls(**line)


@dataclass
class SampleRecord(Line):
    """One prompt, or one turn of a multi-turn prompt, decoded by the method and by AR.

    `emitted`: number of new ids, including the one chosen by the prefill. `acceptance_lengths`:
    tokens advanced in each round, including the bonus token and not trimmed (the papers' tau).
    `emitted_per_round_counts`: tokens of each round that reached the output (none after a stop or
    past the cap), so `emitted == 1 + sum(emitted_per_round_counts)`. `time` has the keys of
    `StageClock.times()`; `ar` has `emitted`, `prefill` and `decode`. `verified`: drafts that the
    target verified in all rounds, the roots not counted (None in older records). `fallback`: why
    the prompt was decoded by AR instead (the drafter could not take it). `error`: set if the sample
    failed.
    """

    id: str
    category: str
    turn: int
    prompt_sha256: str
    prompt_tokens: int
    method: str
    ids: list[int]
    text: str
    finish: str | None
    ar_ids: list[int]
    verdict: str | None
    emitted: int
    rounds: int
    acceptance_lengths: list[int]
    emitted_per_round_counts: list[int]
    time: dict[str, float]
    ar: dict[str, float] | None
    verdict_detail: dict[str, Any] | None = None
    fallback: str | None = None
    error: dict[str, Any] | None = None
    degenerate: bool = False
    enable_thinking: bool = False
    exact: bool = True  # the verification rule preserves the target's distribution
    repeat: int = 0
    verified: int | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """(id, turn, repeat), unique in samples.jsonl."""
        return self.id, self.turn, self.repeat

    def validate(self) -> None:
        """Raise RecordError if counts, ids and verdict contradict each other."""
        problems = []
        if self.emitted != len(self.ids):
            problems.append(f"emitted {self.emitted} but {len(self.ids)} ids")
        if not self.rounds == len(self.acceptance_lengths) == len(self.emitted_per_round_counts):
            problems.append(
                f"{self.rounds} rounds, {len(self.acceptance_lengths)} acceptance lengths, "
                f"{len(self.emitted_per_round_counts)} emitted counts"
            )
        times = [*self.time.values(), *(self.ar or {}).values()]
        counted = [*self.acceptance_lengths, *self.emitted_per_round_counts, self.verified or 0]
        if min([0, *times, *counted]) < 0:
            problems.append("a count or a time is negative")
        if self.ar is not None and not {"emitted", "decode"} <= self.ar.keys():
            problems.append(
                f"ar has {', '.join(self.ar) or 'no keys'}, but needs emitted and decode"
            )
        detail = self.verdict_detail or {}
        problems += [
            f"verdict detail {key} is {str(detail[key])[:80]!r}"
            for key, fits in _DETAIL.items()
            if not fits(detail.get(key))
        ]
        if self.error is None:
            if self.verdict not in VERDICTS:
                problems.append(f"verdict {self.verdict!r} is not one of {', '.join(VERDICTS)}")
            if self.finish not in FINISHES:
                problems.append(f"finish {self.finish!r} is not one of {', '.join(FINISHES)}")
            if "decode" not in self.time:
                problems.append("no decode time")
            if self.rounds and self.emitted != 1 + sum(self.emitted_per_round_counts):
                problems.append(
                    f"emitted {self.emitted} is not 1 + {sum(self.emitted_per_round_counts)}, the "
                    "sum over rounds"
                )
        if problems:
            raise RecordError(f"sample {self.id!r} turn {self.turn}: {'; '.join(problems)}")


@dataclass
class RoundRecord(Line):
    """One round: draft, build, verify, commit.

    `start`: the root's absolute position. `accepted`: indices of the accepted nodes in the verified
    tree, without the root (0). `accepted_tokens`: their tokens. `accepted_ranks`: their indices
    among their depth's candidates. `tokens_advanced`: the acceptance length, including the bonus
    token. `emitted`: how many of those reached the output. `tree_size`, `supertree_size`: non-root
    nodes. `accepted_places`: the accepted nodes' ranks among their siblings (0: the best path
    score). `path_children`: number of children of each node on the path, root first. The last two
    are None in older records.
    """

    id: str
    turn: int
    round: int
    start: int
    root: int
    accepted: list[int]
    accepted_tokens: list[int]
    accepted_ranks: list[int] | None
    bonus: int
    tree_size: int
    supertree_size: int
    tree_depth: int
    tokens_advanced: int
    emitted: int
    time: dict[str, float] = field(default_factory=dict)
    repeat: int = 0
    accepted_places: list[int] | None = None
    path_children: list[int] | None = None

    def validate(self) -> None:
        """Raise RecordError if lists along the path differ in length or a count is negative."""
        lists = (self.accepted_tokens, self.accepted_ranks, self.accepted_places)
        counted = (
            self.round,
            self.tree_size,
            self.supertree_size,
            self.tree_depth,
            self.tokens_advanced,
            self.emitted,
        )
        if (
            any(found is not None and len(found) != len(self.accepted) for found in lists)
            or min(counted) < 0
        ):
            raise RecordError(
                f"round {self.round} of sample {self.id!r} turn {self.turn}: its counts contradict "
                "each other"
            )
        if self.path_children is not None and len(self.path_children) != len(self.accepted) + 1:
            raise RecordError(
                f"round {self.round} of sample {self.id!r} turn {self.turn}: path_children does "
                "not fit the path"
            )

    @property
    def sample_key(self) -> tuple[str, int, int]:
        """Key of the sample this round belongs to."""
        return self.id, self.turn, self.repeat


def read_samples(lines: Iterable[dict[str, Any]]) -> Iterator[SampleRecord]:
    """The records of parsed lines.

    Raises RecordError for one that contradicts itself or is recorded twice.
    """
    seen = set()
    for line in lines:
        sample = SampleRecord.from_dict(line)
        sample.validate()
        if sample.key in seen:
            raise RecordError(
                f"sample {sample.id!r} turn {sample.turn} repeat {sample.repeat} is recorded twice"
            )
        seen.add(sample.key)
        yield sample
