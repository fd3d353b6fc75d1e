"""Files and folders that are put in place whole, also after a crash. Symbolic links are never
written through.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from dartree_exp.records.schema import RecordError

_TEMPORARY = ".tmp"  # after the number of the process that writes
_STALE = 3600.0  # seconds; an older temporary file is deleted, even if its process id is in use
_NO_SYNC = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EBADF,
)  # how file systems say that they cannot fsync


@contextmanager
def replaced(path: Path, first_stays: bool = False) -> Iterator[Path]:
    """Give a new name beside `path`; what the block made there, a file or a folder, then replaces
    `path`. Where the block fails, `path` stays as it was and the temporary is removed.

    A reader sees the old content of a file or the new one, also after a power cut; a symbolic link
    at `path` is replaced, not followed. A folder at `path` is first moved aside. first_stays: a
    folder that is there and holds something is kept instead, and the new one removed. Raises
    RecordError for what the file system refuses.
    """
    temporary = path.with_name(temporary_name(path.name))
    with explained(path):
        try:
            yield temporary
            if temporary.is_dir():
                _place_folder(temporary, path, first_stays)
            else:
                _sync_path(temporary)
                os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            _remove(temporary)


def _place_folder(new: Path, path: Path, first_stays: bool) -> None:
    """No file system renames a folder over one that has files in it."""
    try:
        os.rename(new, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if first_stays:
            return
        old = path.with_name(temporary_name(path.name))
        os.rename(path, old)
        os.rename(new, path)
        _remove(old)


def _remove(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _sync_path(path: Path) -> None:
    with opened(path, os.O_RDONLY) as file:
        sync(file.fileno())


def temporary_name(name: str) -> str:
    """A name that nobody else uses, for what is written before it is renamed; it says which process
    writes.
    """
    return f".{name[:64]}.{uuid.uuid4().hex[:8]}.{_host()}.{os.getpid()}{_TEMPORARY}"


def _host() -> str:
    """This machine, in eight characters that a file name may hold."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def remove_temporaries(folder: Path) -> None:
    """Delete what writers left in a folder that died while they wrote; what living ones write
    stays.
    """
    for file in folder.glob(f".*{_TEMPORARY}"):
        *_, host, number = ["", *file.name.removesuffix(_TEMPORARY).split(".")]
        with suppress(OSError):
            dead = host == _host() and number.isdecimal() and not is_alive(int(number))
            if number.isdecimal() and (dead or time.time() - file.stat().st_mtime > _STALE):
                _remove(file)


def is_alive(pid: int) -> bool:
    """Whether this machine has such a process, whoever owns it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError into the RecordError that says what it means for the user. path: what is
    being written.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(_meaning(error, path)) from error


def _meaning(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{path}: no space left on the disk. Records written before are complete: "
            "free some space and run the same command again to resume."
        )
    if error.errno == errno.ELOOP:
        return f"{path} is a symbolic link; records are not written through links: remove it"
    return f"{path}: {error.strerror or error}"


@contextmanager
def opened(path: Path, flags: int) -> Iterator[FileIO]:
    """An unbuffered binary file; ELOOP where `path` is a symbolic link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with FileIO(descriptor, "r+" if flags & os.O_RDWR else "w") as file:
        yield file


def sync(descriptor: int) -> None:
    """fsync, where the file system supports it; fewer support it for folders."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, where it may be read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a folder may be writable and not readable
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
