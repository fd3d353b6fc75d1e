"""Damages of a file, drawn by hypothesis: bytes, JSON values, and things other than files in its
place.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dartree_exp.errors import UserError

DEEP = "@deep@"  # stands for a nesting that json.dumps could not write
ODD = [
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        7,
        2**31,
        2**63,
        -(2**63),
        10**400,
        0.5,
        -0.0,
        1e308,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        " ",
        "x",
        "\x00",
        "\ud800",
        "a\nb",
        "$x",
        "../..",
        "9" * 5000,
        [],
        {},
        [[]],
        [None],
        {"a": 1},
        [1, "x"],
        DEEP,
    ),
]
PLACES = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("no such file"),
    "a link to the folder": lambda path: path.symlink_to("."),
}
BYTES: dict[str, Callable[[bytes, int], bytes]] = {
    "empty": lambda old, at: b"",
    "cut": lambda old, at: old[: at % (len(old) + 1)],
    "doubled": lambda old, at: old + old,
    "flipped bit": lambda old, at: _with(
        old, at, bytes([old[at % len(old)] ^ (1 << at % 8)]) if old else b""
    ),
    "byte that is no UTF-8": lambda old, at: _with(old, at, b"\xff"),
    "zero byte": lambda old, at: _with(old, at, b"\x00"),
    "byte order mark": lambda old, at: b"\xef\xbb\xbf" + old,
    "pointer": lambda old, at: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    ),
    "deep": lambda old, at: b"[" * 100_000,
    "null": lambda old, at: b"null\n",
    "other line": lambda old, at: old + b"{}\n",
}
RANDOM = st.integers(0, 2**31)


def bounded(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run, nothing stored, no clock."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def damages(names: list[str]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """One or two damages of files with these names; most change a JSON value where a file holds
    JSON.
    """
    name = st.sampled_from(names)
    small = [n for n in names if n.endswith((".json", ".jsonl", ".yaml"))]
    value = st.tuples(
        st.just("value"), st.sampled_from(small or names), RANDOM, st.sampled_from(ODD), RANDOM
    )
    kinds = st.one_of(
        value,
        value,
        value,
        st.tuples(st.just("bytes"), name, st.sampled_from(sorted(BYTES)), RANDOM),
        st.tuples(st.just("place"), name, st.sampled_from(sorted(PLACES))),
    )
    return st.lists(kinds, min_size=1, max_size=2)


def inflict(folder: Path, damage: tuple[Any, ...]) -> None:
    """Damage a file of the folder; one that an earlier damage took away is left."""
    kind, name, *rest = damage
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return
    if kind == "place":
        path.unlink()
        PLACES[rest[0]](path)
        return
    old = path.read_bytes()
    packed = name.endswith(".gz")
    if packed and kind == "value":
        try:
            old = gzip.decompress(old)
        except (OSError, EOFError, zlib.error):
            return
    new = BYTES[rest[0]](old, rest[1]) if kind == "bytes" else _other_value(old, name, *rest)
    path.write_bytes(gzip.compress(new) if packed and kind == "value" else new)


def copy(folder: Path, into: Path) -> Path:
    """A fresh copy of a folder in place of an earlier one."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(folder, into)
    return into


def listing(folder: Path) -> list[str]:
    """Every name below a folder, links not followed."""
    return sorted(
        os.path.join(root, name)
        for root, dirs, files in os.walk(folder)
        for name in (*dirs, *files)
    )


def only_user_errors(call: Callable[[], Any], counts: dict[str, int]) -> Any:
    """The result; None after a UserError, whose message must be one line. Any other exception is
    the test's failure.
    """
    try:
        result = call()
    except UserError as error:
        assert str(error) and not any(ord(letter) < 32 for letter in str(error)), repr(str(error))
        counts["refused"] = counts.get("refused", 0) + 1
        return None
    counts["read"] = counts.get("read", 0) + 1
    return result


def check(counts: dict[str, int], refused: int, read: int) -> None:
    """So many at least of either outcome: no test passes by refusing, or accepting, everything."""
    print(counts)
    assert counts["refused"] >= refused and counts["read"] >= read, counts


def _with(old: bytes, at: int, new: bytes) -> bytes:
    place = at % max(len(old), 1)
    return old[:place] + new + old[place + 1 :]


def _other_value(old: bytes, name: str, at: int, value: Any, how: int) -> bytes:
    """JSON, YAML or one line of JSON lines with a value replaced, deleted or renamed; other content
    is left.
    """
    text = old.decode("utf-8", "replace")
    lines = text.splitlines() if ".jsonl" in name else [text]
    number = at % max(len(lines), 1)
    try:
        document = [(yaml.safe_load if name.endswith(".yaml") else json.loads)(lines[number])]
    except (ValueError, IndexError, RecursionError, yaml.YAMLError):
        return old
    places = list(_places(document))
    holder, key = places[at % len(places)]
    if how % 4 == 0:
        del holder[key]
    elif how % 4 == 1 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    else:
        holder[key] = value
    changed = json.dumps(document[0] if document else None)
    lines[number] = changed.replace(json.dumps(DEEP), "[" * 50_000 + "]" * 50_000)
    return ("\n".join(lines) + "\n").encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value within a JSON document."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])
