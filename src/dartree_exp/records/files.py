"""Files that survive a crash: JSON replaced whole, JSON lines appended whole."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dartree_exp.records.schema import RecordError

_TEMPORARY = ".tmp"  # after the number of the process that writes


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: NaN, infinities and values JSON does not know raise RecordError instead of being written."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, TypeError) as error:
        raise RecordError(f"not a JSON value: {error} in {str(value)[:200]}") from error


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8): readers see the old content or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain(error, path) from error


def remove_temporaries(folder: Path) -> None:
    """Delete what `write_atomic` of killed processes left in a folder; those of living ones stay."""
    for file in folder.glob(f".*{_TEMPORARY}"):
        number = file.name.removesuffix(_TEMPORARY).rpartition(".")[2]
        if number.isdecimal() and not is_alive(int(number)):
            file.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether this machine has such a process, whoever owns it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented JSON."""
    write_atomic(path, dump_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Parsed JSON; RecordError where the file cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}") from error


def encode_lines(values: Iterable[Any]) -> bytes:
    """JSON lines, one a value; RecordError as `dump_json`."""
    return "".join(dump_json(value) + "\n" for value in values).encode()


def append_lines(path: Path, data: bytes) -> None:
    """Append encoded lines and force them to disk; all of them are in the file, or (an exception) none."""
    if not data:
        return
    try:
        with open(path, "ab") as file:
            size = file.tell()
            try:
                _write(file, data)
            except BaseException:
                # A half-written line would swallow the next record; on a full disk this also gives space back.
                os.ftruncate(file.fileno(), size)
                raise
    except OSError as error:
        raise explain(error, path) from error


def _write(file: Any, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON-lines file; an unfinished last line (a killed writer) is left out.

    Raises RecordError with file and line number where anything but the last line is damaged.
    """
    for _, value in _parse(path):
        yield value


def repair_lines(path: Path) -> list[dict[str, Any]]:
    """Cut off an unfinished last line in place and return what remains ([] where there is no file)."""
    values, end = [], 0
    for end, value in _parse(path):  # noqa: B007  # the end of the last good line is used after the loop
        values.append(value)
    if path.exists() and path.stat().st_size > end:
        with open(path, "r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return values


def _parse(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(offset after the line, parsed line) for each good line."""
    if not path.exists():
        return
    offset, damaged = 0, None
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if damaged is not None:
                raise RecordError(f"{path}:{damaged}: damaged line inside the file; restore it or delete the folder")
            offset += len(line)
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("no line end")
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise ValueError("not an object")
            except ValueError:
                damaged = number
                continue
            yield offset, value


def explain(error: OSError, path: Path) -> RecordError:
    """What a failed write means for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RecordError(
            f"{path}: no space left on the disk. Records written before are complete: "
            "free some space and run the same command again to resume."
        )
    return RecordError(f"{path}: {error.strerror or error}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
