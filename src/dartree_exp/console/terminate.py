"""SIGTERM from a scheduler or `kill`: handled between prompts or steps, so the current one is
finished and kept.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM: the run is recorded as interrupted; rerun to resume."""


def terminate(signum: int, frame: FrameType | None) -> None:
    """Signal handler: end immediately."""
    raise Terminated


@contextmanager
def deferred(also: Sequence[signal.Signals] = ()) -> Iterator[Callable[[], None]]:
    """In the block, the first SIGTERM only sets a flag; the yielded function raises Terminated once
    it is set, and so does the end of the block.

    A second SIGTERM ends the process immediately, and so does Ctrl-C, unless SIGINT is in `also`,
    which defers it too. Nothing changes for a process with its own handler (a cluster's job runner)
    or outside the main thread.
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
