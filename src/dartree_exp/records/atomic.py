"""Atomic replacement of files and folders, also after a crash. Never writes through a symlink."""

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

_TEMPORARY = ".tmp"  # follows the process id of the writer
_STALE = 3600.0  # seconds; an older temporary file is deleted, even if its process id is in use
# Errors of file systems that do not support fsync.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


@contextmanager
def replaced(path: Path, first_stays: bool = False) -> Iterator[Path]:
    """Yield a temporary path; the file or folder that the block creates there replaces `path`. If
    the block fails, `path` is unchanged and the temporary is removed.

    A reader sees the old or the new content of a file, also after a power cut. A symbolic link at
    `path` is replaced, not followed. A folder at `path` is moved aside first. first_stays: keep a
    non-empty folder at `path` and remove the new one. Raises RecordError for file system errors.
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
    """Rename `new` to `path`; a non-empty folder at `path` must be moved aside first."""
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
    """A unique temporary name, which contains the host and the process id of the writer."""
    return f".{name[:64]}.{uuid.uuid4().hex[:8]}.{_host()}.{os.getpid()}{_TEMPORARY}"


def _host() -> str:
    """Eight hex digits that identify this machine."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def remove_temporaries(folder: Path) -> None:
    """Delete the temporary files of dead writers in a folder."""
    for file in folder.glob(f".*{_TEMPORARY}"):
        *_, host, number = ["", *file.name.removesuffix(_TEMPORARY).split(".")]
        with suppress(OSError):
            dead = host == _host() and number.isdecimal() and not is_alive(int(number))
            if number.isdecimal() and (dead or time.time() - file.stat().st_mtime > _STALE):
                _remove(file)


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists on this machine, owned by any user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError into a RecordError with advice for the user. path: the file being written."""
    try:
        yield
    except OSError as error:
        raise RecordError(_meaning(error, path)) from error


def _meaning(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{path}: no space left on the disk. Earlier records are complete: "
            "free some space and rerun the command to resume."
        )
    if error.errno == errno.ELOOP:
        return f"{path} is a symbolic link; records are not written through links: remove it"
    return f"{path}: {error.strerror or error}"


@contextmanager
def opened(path: Path, flags: int) -> Iterator[FileIO]:
    """An unbuffered binary file. Raises OSError (ELOOP) if `path` is a symbolic link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with FileIO(descriptor, "r+" if flags & os.O_RDWR else "w") as file:
        yield file


def sync(descriptor: int) -> None:
    """fsync, if the file system supports it (not all do for folders)."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, if the folder is readable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a folder may be writable but not readable
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
