"""Atomic writes: JSON files are replaced whole, JSON lines are appended whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from dartree_exp.records.atomic import explained, opened, replaced, sync, sync_folder
from dartree_exp.records.schema import RecordError

HASH_DIGITS = 12


def dump_json(value: object, indent: int | None = None) -> str:
    """Strict JSON. Raises RecordError for NaN, infinities and values that JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, TypeError) as error:
        raise RecordError(f"not a JSON value: {error} in {str(value)[:200]}") from error


def hash_of(plain: Mapping[str, Any]) -> str:
    """12 hex digits that identify a mapping of JSON values; the order of keys does not matter."""
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8), see `replaced`."""
    data = _utf8(text)
    with replaced(path) as temporary, open(temporary, "xb", buffering=0) as file:
        _write(file, data)


def write_json(path: Path, value: object) -> None:
    """`write_atomic` of indented JSON."""
    write_atomic(path, dump_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Parsed JSON. Raises RecordError if the file cannot be read or is not JSON."""
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


def encode_lines(values: Iterable[object]) -> bytes:
    """JSON lines, one per value. Raises RecordError as `dump_json` does."""
    return _utf8("".join(dump_json(value) + "\n" for value in values))


def append_lines(path: Path, data: bytes) -> None:
    """Append encoded lines and force them to disk. If this raises, none of them are in the file."""
    if not data:
        return
    with explained(path), opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            _write(file, data)
            sync(file.fileno())
            if not size:
                sync_folder(path.parent)
        except BaseException:
            # A half-written line would damage the next one; this also frees space on a full disk.
            os.ftruncate(file.fileno(), size)
            raise


def iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON-lines file, without an unfinished last line (a killed writer).

    Raises RecordError with file and line number if any other line is damaged.
    """
    for _, value in _parse(path):
        yield value


def repair_lines(path: Path) -> list[dict[str, Any]]:
    """Cut off an unfinished last line in place. Returns the other lines ([] without a file)."""
    values, end = [], 0
    for end, value in _parse(path):  # noqa: B007  # `end` is used after the loop
        values.append(value)
    with explained(path):
        if path.exists() and path.stat().st_size > end:
            with opened(path, os.O_RDWR) as file:
                file.truncate(end)
                sync(file.fileno())
    return values


def _write(file: FileIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"text cannot be written: {error}") from error


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
    """`json.loads`. Raises ValueError for anything that `dump_json` cannot write."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
