"""Files that survive a crash: JSON replaced whole, JSON lines appended whole. Symbolic links are
never written through.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dartree_exp.records.schema import RecordError

HASH_DIGITS = 12
_TEMPORARY = ".tmp"  # after the number of the process that writes
_STALE = 3600.0  # seconds after which a temporary is nobody's, whoever has its process id now
_NO_SYNC = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EBADF,
)  # how file systems say that they cannot fsync


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: NaN, infinities and values JSON does not know raise RecordError instead of being
    written.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, TypeError) as error:
        raise RecordError(f"not a JSON value: {error} in {str(value)[:200]}") from error


def hash_of(plain: Mapping[str, Any]) -> str:
    """12 hex digits that name a mapping of JSON values, whatever the order of its keys."""
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8): readers see the old content or the new one, also after a
    power cut.

    A symbolic link at `path` is replaced, not followed.
    """
    data = _utf8(text)
    temporary = path.with_name(temporary_name(path.name))
    with explained(path):
        try:
            # O_EXCL: the name is new, so nobody's link lies there.
            with open(temporary, "xb", buffering=0) as file:
                _write(file, data)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented JSON."""
    write_atomic(path, dump_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Parsed JSON; RecordError where the file cannot be read or is not JSON."""
    try:
        return _parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {' '.join(str(error).split())}") from error


def read_object(path: Path) -> dict[str, Any]:
    """`read_json` of a file that must hold a JSON object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RecordError(f"{path}: holds a JSON {type(value).__name__}, not an object")
    return value


def encode_lines(values: Iterable[Any]) -> bytes:
    """JSON lines, one a value; RecordError as `dump_json`."""
    return _utf8("".join(dump_json(value) + "\n" for value in values))


def append_lines(path: Path, data: bytes) -> None:
    """Append encoded lines and force them to disk; all of them are in the file, or (an exception)
    none.
    """
    if not data:
        return
    with explained(path), _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            _write(file, data)
            if not size:
                _sync_folder(path.parent)
        except BaseException:
            # A half-written line would swallow the next record; on a full disk this also gives
            # space back.
            os.ftruncate(file.fileno(), size)
            raise


def iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON-lines file; an unfinished last line (a killed writer) is left
    out.

    Raises RecordError with file and line number where anything but the last line is damaged.
    """
    for _, value in _parse(path):
        yield value


def repair_lines(path: Path) -> list[dict[str, Any]]:
    """Cut off an unfinished last line in place and return what remains ([] where there is no
    file).
    """
    values, end = [], 0
    for end, value in _parse(path):  # noqa: B007  # the end of the last good line is used after the loop
        values.append(value)
    with explained(path):
        if path.exists() and path.stat().st_size > end:
            with _opened(path, os.O_RDWR) as file:
                file.truncate(end)
                _sync(file.fileno())
    return values


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
                shutil.rmtree(file) if file.is_dir() else file.unlink()


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
def _opened(path: Path, flags: int) -> Iterator[Any]:
    """An unbuffered binary file; ELOOP where `path` is a symbolic link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "r+b" if flags & os.O_RDWR else "wb", buffering=0) as file:
        yield file


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"not a text that can be written: {error}") from error


def _write(file: Any, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    _sync(file.fileno())


def _sync(descriptor: int) -> None:
    """fsync where the file system has it: not all have, and for folders fewer."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # a folder may be writable and not readable
        return
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _parse(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(offset after the line, parsed line) for each good line."""
    offset, damaged = 0, None
    with explained(path), suppress(FileNotFoundError), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if damaged is not None:
                raise RecordError(
                    f"{path}:{damaged}: damaged line inside the file; restore it or delete the "
                    "folder"
                )
            offset += len(line)
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("no line end")
                value = _parse_json(line)
                if not isinstance(value, dict):
                    raise ValueError("not an object")
            except ValueError:
                damaged = number
                continue
            yield offset, value


def _parse_json(text: str | bytes) -> Any:
    """`json.loads` of what `dump_json` can have written; ValueError for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
