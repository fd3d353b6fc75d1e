"""SIGTERM, as a scheduler or `kill` sends it: looked at between prompts, so that the running prompt
is kept.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """The process was asked to end: the run is recorded as interrupted, and the same command goes
    on from there.
    """


def terminate(signum: int, frame: FrameType | None) -> None:
    """Signal handler: end at once."""
    raise Terminated


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Inside the block the first SIGTERM is only noted; the function it yields raises Terminated
    once that has happened.

    A second SIGTERM, like Ctrl-C at any time, ends at once. The end of the block looks once more. A
    process with a handler of its own (a cluster's job runner) keeps it, as does a thread that is
    not the main one.
    """
    noted = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise Terminated
        noted = True

    def check() -> None:
        if noted:
            raise Terminated

    if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, terminate):
        yield check
        return
    try:
        before = signal.signal(signal.SIGTERM, note)
    except ValueError:  # not the main thread
        yield check
        return
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGTERM, before)
