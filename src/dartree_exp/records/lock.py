"""One process per run folder: an advisory lock that the kernel releases, also after kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from dartree_exp.records.atomic import explained
from dartree_exp.records.schema import RecordError

_PATIENCE = 0.5  # seconds; a report that reads the folder holds the lock for an instant


class FolderBusy(RecordError):
    """Another process works in this run folder."""


class FolderLock:
    """Exclusive lock on `path`, held from construction to `release()`. Raises FolderBusy if another
    process holds it.
    """

    def __init__(self, path: Path) -> None:
        # O_CLOEXEC: a child process that outlives this one must not keep the folder locked.
        with explained(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(self._file, 64, 0).decode(errors="replace").strip()
                    os.close(self._file)
                    who = f"process {holder}" if holder else "another process"
                    raise FolderBusy(f"{path.parent} is in use by {who}") from None
                time.sleep(0.02)
            except OSError as error:  # ENOLCK, ENOSYS: some network file systems
                os.close(self._file)
                raise RecordError(
                    f"{path}: this file system has no file locks ({error.strerror}), so two runs "
                    "could write here at once; choose an `output` on another file system"
                ) from error
        with contextlib.suppress(OSError):  # the process id is optional: the disk may be full
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file `path`; True also if that cannot be determined."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
