"""When the reader of standard output is gone (`| head`), output is dropped and the work
continues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class _Unread:
    """A stream that turns to the null device when its reader is gone."""

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
        # What is still buffered goes to the null device as well, also when Python flushes at its
        # end.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


@contextmanager
def survive_closed_pipe() -> Iterator[None]:
    """Within the block a closed standard output raises nothing."""
    before = sys.stdout
    stream: Any = _Unread(before)
    sys.stdout = stream
    try:
        yield
    finally:
        stream.flush()
        sys.stdout = before
