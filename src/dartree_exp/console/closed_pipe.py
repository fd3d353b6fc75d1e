"""Drops output and continues if the reader of standard output has exited (`| head`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class _Unread:
    """A stream that switches to the null device when its reader has exited."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._silence()

    def _silence(self) -> None:
        # Also for buffered output that Python flushes at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


@contextmanager
def survive_closed_pipe() -> Iterator[None]:
    """In the block, a closed standard output raises no error."""
    before = sys.stdout
    stream: Any = _Unread(before)
    sys.stdout = stream
    try:
        yield
    finally:
        stream.flush()
        sys.stdout = before
