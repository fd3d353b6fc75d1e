"""Read text and JSON from external files (prompts, models, checkpoints) with one-line errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dartree_exp.errors import UserError

_BOM = b"\xef\xbb\xbf"
_LFS = b"version https://git-lfs"


class UnreadableError(UserError):
    """A file that cannot be read or has unexpected content; the message names file and reason."""


def user_path(text: str) -> Path:
    """A user's path with `~` expanded. Unlike `Path.expanduser`, accepts an unknown user's home."""
    return Path(os.path.expanduser(text))


def read_text(path: Path) -> str:
    """UTF-8 text without its byte order mark. Raises UnreadableError."""
    refuse_pointer(path)
    return decode(path.read_bytes(), str(path))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises UnreadableError."""
    text = read_text(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UnreadableError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableError(f"{path} is not a JSON object")
    return value


def decode(content: bytes, source: str) -> str:
    """UTF-8 text without its byte order mark. source: named in messages. Raises UnreadableError."""
    try:
        return content.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{source} is not UTF-8 text: {_first_line(error)}") from error


def refuse_pointer(path: Path) -> None:
    """Raise UnreadableError for a Git LFS pointer: the placeholder of a file not yet fetched."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS))
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if head == _LFS:
        raise UnreadableError(
            f"{path} is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"
        )


def parse_json(text: str) -> Any:
    """`json.loads`. Raises a one-line ValueError for invalid JSON, nesting that is too deep, and
    half a surrogate pair in a string (which cannot be encoded again).
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(_first_line(error)) from error
    refuse_surrogates(text, value)
    return value


def refuse_surrogates(text: str, value: object) -> None:
    """Raise ValueError if the value parsed from `text` contains half a surrogate pair."""
    if "\\ud" not in text.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string has half a surrogate pair (a lone \\ud800..\\udfff)") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
