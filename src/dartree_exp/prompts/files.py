"""Reads rows from a local file: JSON lines or a JSON list (also gzipped), or Parquet. A damaged row
is an error with its number.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dartree_exp.errors import UserError
from dartree_exp.records.reading import decode, parse_json, refuse_pointer, refuse_surrogates

Row = dict[str, Any]

MAX_BYTES = 1 << 29
"""Limit of the unpacked size: a few kilobytes of gzip can unpack to more than the memory."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, in order. Raises UserError with the file and the damaged row or line."""
    refuse_pointer(path)
    if path.suffix == ".parquet":
        return _from_parquet(path)
    return parse_rows(_content(path), str(path))


def parse_rows(content: bytes, source: str) -> list[Row]:
    """The rows of UTF-8 text, with or without a byte order mark: a JSON list or JSON lines,
    regardless of the file's name.

    source: for messages. Raises UserError as `read_rows`.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content.lstrip()[:1] == b"[":
        return list(_list(decode(content, source), source))
    return list(_lines(content, source))


def _content(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if len(content) > MAX_BYTES:
        raise UserError(
            f"{path}: has more than {MAX_BYTES} bytes (MAX_BYTES of dartree_exp.prompts.files)"
        )
    return content


def _lines(content: bytes, source: str) -> Iterator[Row]:
    # Not splitlines: strings may contain unescaped U+2028 and similar characters.
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            place = f"{source}, line {number}"
            text = decode(line, place)
            try:
                row = parse_json(text)
            except ValueError as error:
                raise UserError(f"{place}: not JSON: {error}") from error
            yield _object(row, place)


def _list(text: str, source: str) -> Iterator[Row]:
    """The items of a JSON list, read one by one to find the number of a damaged one."""
    at, number = _skip(text, text.index("[") + 1), 0
    closed = text[at : at + 1] == "]"
    while not closed:
        place = f"row {number} of {source}"
        try:
            row, end = _DECODER.raw_decode(text, at)
            refuse_surrogates(text[at:end], row)
        except RecursionError:
            raise UserError(f"{place}: not JSON: nested too deeply") from None
        except ValueError as error:
            raise UserError(f"{place}: not JSON: {error}") from error
        yield _object(row, place)
        at, number = _skip(text, end), number + 1
        closed = text[at : at + 1] == "]"
        if not closed and text[at : at + 1] != ",":
            raise UserError(f"{place}: not followed by a comma or the end of the list")
        at = at if closed else _skip(text, at + 1)
    if _skip(text, at + 1) != len(text):
        raise UserError(f"{source}: unexpected text after the end of the list")


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None  # it matches the empty string
    return space.end()


def _object(row: object, place: str) -> Row:
    if not isinstance(row, dict):
        raise UserError(f"{place}: not a JSON object")
    return row


def _from_parquet(path: Path) -> list[Row]:
    import datasets  # slow to import
    from pyarrow import ArrowException

    level = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are raised below
    try:
        # Streamed, with a temporary cache folder: reading a file leaves nothing on the disk.
        with tempfile.TemporaryDirectory() as cache:
            rows = datasets.load_dataset(
                "parquet", data_files=str(path), split="train", streaming=True, cache_dir=cache
            )
            return [dict(row) for row in rows]
    except (OSError, ValueError, ArrowException, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"{path}: cannot be read as Parquet: {str(error).partition(chr(10))[0]}"
        ) from error
    finally:
        datasets.logging.set_verbosity(level)
