"""The clock: decode time of a prompt, by stage.

Decode time starts when the first token is known (prefill is separate) and ends with the last
commit. Time outside all stages is `other`, so the stages always add up to the decode time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STAGES = ("draft", "build", "mask", "verify", "commit", "other")
_TIMED = STAGES[:-1]
_NS = 1e-9


class StageClock:
    """Times one prompt of one arm.

    Args:
        synchronize: waits for the device (`torch.cuda.synchronize`); None on a CPU. Called at both
            ends of the prefill and of the decode time.
        profile: also synchronise at both ends of every stage. Without it, a stage on an
            asynchronous device is the time to queue its work, and the total is not slowed down.
        exclude_first_draft: leave the first draft out of the decode time, as the papers' scripts do
            (`protocol=paper`); it is reported as `excluded`.
        now: monotonic clock in nanoseconds; tests pass a fake.

    Usage: `with clock.prefill(): ...`, then `clock.start()`, per round `with clock.stage("draft"):
    ...` and `clock.end_round()`, then `clock.stop()`. Calls out of this order raise RuntimeError.
    """

    def __init__(
        self,
        synchronize: Callable[[], None] | None = None,
        profile: bool = False,
        exclude_first_draft: bool = False,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._synchronize = synchronize
        self._profile = profile
        self._exclude_pending = exclude_first_draft
        self._now = now
        self._prefill = 0
        self._excluded: int | None = 0 if exclude_first_draft else None
        self._total = dict.fromkeys(_TIMED, 0)
        self._round = dict.fromkeys(_TIMED, 0)
        self._round_excluded = 0
        self._started: int | None = None
        self._round_started = 0
        self._decode: int | None = None
        self._open: str | None = None
        self._lent = 0  # part of the open stage's time that is counted for other stages

    @contextmanager
    def prefill(self) -> Iterator[None]:
        """Time the prompt's forward pass and the choice of the first token; before `start`."""
        if self._started is not None:
            raise RuntimeError("prefill belongs before start()")
        begin = self._read(synchronize=True)
        try:
            yield
        finally:
            self._prefill += self._read(synchronize=True) - begin

    def start(self) -> None:
        """Begin the decode time: the first token is known."""
        if self._started is not None:
            raise RuntimeError(
                "the clock was already started; use a new one for each prompt and arm"
            )
        self._started = self._round_started = self._read(synchronize=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside for the stage `name` (draft, build, mask, verify or commit); stages
        cannot be nested.
        """
        if name not in self._round:
            raise ValueError(f"unknown stage {name!r}; stages are {', '.join(_TIMED)}")
        if self._started is None or self._decode is not None:
            raise RuntimeError(f"stage {name!r} outside start() and stop()")
        if self._open is not None:
            raise RuntimeError(f"stage {name!r} inside stage {self._open!r}")
        exclude = self._exclude_pending and name == "draft"
        begin = self._read(self._profile or exclude)
        self._open, self._lent = name, 0
        try:
            yield
        finally:
            spent = self._read(self._profile or exclude) - begin - self._lent
            self._open = None
            if exclude:
                self._exclude_pending = False
                self._excluded = spent
                self._round_excluded = spent
            else:
                self._round[name] += spent

    @contextmanager
    def lend(self, name: str) -> Iterator[None]:
        """In a stage, count the time inside for the stage `name` instead: a drafter that computes
        while the tree is built uses draft time.
        """
        if name not in self._round:
            raise ValueError(f"unknown stage {name!r}; stages are {', '.join(_TIMED)}")
        if self._open is None:
            raise RuntimeError(f"lend({name!r}) outside a stage")
        begin = self._read(self._profile)
        try:
            yield
        finally:
            spent = self._read(self._profile) - begin
            self._round[name] += spent
            self._lent += spent

    def end_round(self) -> dict[str, float]:
        """Close a round; returns its seconds per stage, including `other`."""
        if self._started is None or self._decode is not None:
            raise RuntimeError("end_round() outside start() and stop()")
        if self._open is not None:
            raise RuntimeError(f"end_round() inside stage {self._open!r}")
        now = self._now()
        claimed = self._take_round()
        other = now - self._round_started - self._round_excluded - sum(claimed.values())
        self._round_started, self._round_excluded = now, 0
        return {stage: ns * _NS for stage, ns in (claimed | {"other": other}).items()}

    def stop(self) -> dict[str, float]:
        """End the decode time and return `times()`, including the stages of an unfinished round."""
        if self._started is None:
            raise RuntimeError("stop() before start()")
        if self._decode is not None:
            raise RuntimeError("stop() a second time")
        if self._open is not None:
            raise RuntimeError(f"stop() inside stage {self._open!r}")
        self._decode = self._read(synchronize=True) - self._started - (self._excluded or 0)
        self._take_round()
        return self.times()

    def times(self) -> dict[str, float]:
        """Seconds: `prefill`, `decode`, the six stages, which add up to `decode`, and `excluded`
        with `exclude_first_draft`.
        """
        if self._decode is None:
            raise RuntimeError("times() before stop()")
        other = self._decode - sum(self._total.values())
        nanoseconds = {
            "prefill": self._prefill,
            "decode": self._decode,
            **self._total,
            "other": other,
        }
        if self._excluded is not None:
            nanoseconds["excluded"] = self._excluded
        return {key: ns * _NS for key, ns in nanoseconds.items()}

    def _take_round(self) -> dict[str, int]:
        claimed = self._round
        for stage, spent in claimed.items():
            self._total[stage] += spent
        self._round = dict.fromkeys(_TIMED, 0)
        return claimed

    def _read(self, synchronize: bool) -> int:
        if synchronize and self._synchronize is not None:
            self._synchronize()
        return self._now()
