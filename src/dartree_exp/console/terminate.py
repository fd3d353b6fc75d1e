"""SIGTERM, as a scheduler or `kill` sends it: looked at between prompts or steps, so that the
running one is kept.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """The process was asked to end: the run is recorded as interrupted; rerun to resume."""


def terminate(signum: int, frame: FrameType | None) -> None:
    """Signal handler: end at once."""
    raise Terminated


@contextmanager
def deferred(also: Sequence[signal.Signals] = ()) -> Iterator[Callable[[], None]]:
    """Inside the block the first SIGTERM is only noted; the function it yields raises Terminated
    once that has happened.

    A second SIGTERM ends at once, as does Ctrl-C at any time, unless `also` has SIGINT: then it is
    noted as well. The end of the block looks once more. A process with a handler of its own (a
    cluster's job runner) keeps it, as does a thread that is not the main one.
    """
    noted: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if noted:
            raise _asked(noted[0])
        noted.append(signum)

    def check() -> None:
        if noted:
            raise _asked(noted[0])

    ours = (signal.SIG_DFL, terminate, signal.default_int_handler)
    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGTERM, *also):
            if signal.getsignal(number) in ours:
                before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread
        yield check
        return
    try:
        yield check
        check()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _asked(signum: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if signum == signal.SIGINT else Terminated()
