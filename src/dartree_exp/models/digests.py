"""Cached sha256 of files: an unchanged large file is not read again at every start. Does not import
torch.

Entries of `digests.json` in the cache folder are keyed by path, size, mtime and ctime (in
nanoseconds). If the file is damaged or not writable, digests are computed. It is replaced whole: if
two processes write at once, the entry of one is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dartree_exp.records.files import write_json
from dartree_exp.records.schema import RecordError

CACHE = "digests.json"
SMALL = 1 << 20  # bytes; smaller files are not cached
# seconds; a younger file may change again within one tick of its file system's clock
_SETTLED = 3.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


def cache_folder() -> Path:
    """The cache root: $DARTREE_CACHE, else ~/.cache/dartree_exp."""
    return Path(
        os.environ.get("DARTREE_CACHE") or Path.home() / ".cache" / "dartree_exp"
    ).expanduser()


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's content, not cached."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def remembered_sha256(path: Path) -> str:
    """Hex sha256 of a file's content, cached for large files. Raises OSError."""
    before = path.stat()
    if before.st_size < SMALL:
        return sha256_of(path)
    key, stamp = str(path.resolve()), _stamp(before)
    known = _read().get(key)
    if known is not None and known[:-1] == stamp:
        return str(known[-1])
    digest = sha256_of(path)
    settled = time.time() - max(before.st_mtime, before.st_ctime) > _SETTLED
    if settled and _stamp(path.stat()) == stamp:
        _remember(key, [*stamp, digest])
    return digest


def digest_of_files(files: Iterable[Path]) -> str:
    """One digest of several files, in order: that of a single file, else the digest of the lines
    "<sha256>  <name>".
    """
    digests = [(remembered_sha256(file), file.name) for file in files]
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256(
        "".join(f"{digest}  {name}\n" for digest, name in digests).encode()
    ).hexdigest()


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read() -> dict[str, list[Any]]:
    """The valid cache entries: path -> [size, mtime_ns, ctime_ns, sha256]."""
    try:
        stored = json.loads((cache_folder() / CACHE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {path: entry for path, entry in stored.items() if _is_entry(entry)}
        if isinstance(stored, dict)
        else {}
    )


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, list)
        and [type(part) for part in entry] == [int, int, int, str]
        and _SHA256.fullmatch(entry[-1]) is not None
    )


def _remember(key: str, entry: list[Any]) -> None:
    """Add one entry and drop those whose files no longer exist."""
    kept = {path: old for path, old in _read().items() if os.path.exists(path)}
    with suppress(OSError, RecordError):  # read-only or full: computed again next time
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(cache_folder() / CACHE, {**kept, key: entry})
