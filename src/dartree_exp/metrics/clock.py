"""The one clock: where the decode time of a prompt went.

Decode time starts once the first token is known (prefill is kept apart) and ends with the last
commit. Every nanosecond of it belongs to exactly one stage; what no stage claims is `other`, so the
stages add up to the decode time by construction (DESIGN section 5).
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
        synchronize: called where device work must have ended before time is read
            (`torch.cuda.synchronize`); None on a CPU. Both ends of the prefill and of the decode
            time always synchronise.
        profile: also synchronise at both ends of every stage. Without it a stage of an asynchronous
            device shows when its work was queued, and the headline time is undisturbed.
        exclude_first_draft: leave the first draft out of the decode time, as the papers' scripts do
            (`protocol=paper`); it is reported as `excluded`.
        now: nanoseconds of a monotonic clock; tests pass a fake.

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
        self._lent = 0  # of the open stage's time, given to other stages

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
                "the clock was started before; use a fresh one for each prompt and arm"
            )
        self._started = self._round_started = self._read(synchronize=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Give the time inside to the stage `name` (one of draft, build, mask, verify, commit); no
        nesting.
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
        """Within a stage: give the time inside to the stage `name` instead of the open one. A
        drafter that computes while the tree is built spends draft time.
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
        """Close a round; seconds per stage of this round, `other` being what no stage claimed."""
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
        """End the decode time and return `times()`. Time of an unfinished round keeps its
        stages.
        """
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
        """Seconds: `prefill`, `decode` and the six stages that add up to `decode` (and `excluded`,
        if asked for).
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
