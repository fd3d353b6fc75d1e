"""Digests are cached while a file is unchanged, and a broken cache never stops a run."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dartree_exp.models import digests
from dartree_exp.models.digests import SMALL, digest_of_files, remembered_sha256


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("DARTREE_CACHE", str(folder))
    monkeypatch.setattr(digests, "_SETTLED", -1.0)  # the tests' files are seconds old
    return folder


@pytest.fixture
def read(monkeypatch):
    """The names of the files that were hashed."""
    names, right = [], digests.sha256_of
    monkeypatch.setattr(digests, "sha256_of", lambda path: names.append(path.name) or right(path))
    return names


def large(path, byte=b"a"):
    path.write_bytes(byte * SMALL)
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_large_file_is_read_once_and_again_when_it_changes(cache, read, tmp_path):
    file = large(tmp_path / "w")
    assert [remembered_sha256(file) for _ in range(3)] == [sha256(file)] * 3
    assert read == ["w"]
    times = file.stat()
    large(file, b"b")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same time of writing
    assert remembered_sha256(file) == sha256(file)
    large(other := tmp_path / "x", b"c")
    other.replace(file)
    assert remembered_sha256(file) == sha256(file)


def test_a_file_written_just_now_is_not_remembered(cache, read, tmp_path, monkeypatch):
    """It may change again within one tick of the file system's clock."""
    monkeypatch.setattr(digests, "_SETTLED", 3600.0)
    file = large(tmp_path / "w")
    remembered_sha256(file), remembered_sha256(file)
    assert read == ["w", "w"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"%s": 3}',
        b'{"%s": [1, 2, 3, "short"]}',
        b'{"%s": []}',
    ],
)
def test_a_damaged_cache_is_computed_again_and_replaced(cache, read, tmp_path, content):
    file = large(tmp_path / "w")
    cache.mkdir()
    (cache / "digests.json").write_bytes(content.replace(b"%s", str(file).encode()))
    assert remembered_sha256(file) == remembered_sha256(file) == sha256(file)
    assert read == ["w"] and str(file) in json.loads((cache / "digests.json").read_text())


@pytest.mark.parametrize("refusal", ["a file", "no space"])
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    cache, tmp_path, refusal, monkeypatch
):
    file = large(tmp_path / "w")
    if refusal == "a file":
        cache.write_text("")
    else:
        monkeypatch.setattr(
            digests.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
        )
    assert remembered_sha256(file) == sha256(file)
    assert not cache.is_dir() or not list(cache.iterdir())


def test_concurrent_writers_leave_an_intact_file_and_no_temporaries(cache, tmp_path):
    files = [str(large(tmp_path / f"w{n}")) for n in range(3)]
    code = (
        "import sys\nfrom pathlib import Path\nfrom dartree_exp.models import "
        "digests\ndigests._SETTLED = -1.0\n"
        "for _ in range(30):\n    for f in sys.argv[1:]:\n        digests._remember(f, [1, 2, 3, "
        "'a' * 64])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, *files[n:]]) for n in range(3)]
    assert {writer.wait() for writer in writers} == {0}
    assert [path.name for path in cache.iterdir()] == ["digests.json"]
    assert set(json.loads((cache / "digests.json").read_text())) <= set(files)
    assert remembered_sha256(Path(files[0])) == sha256(Path(files[0]))


def test_what_is_gone_is_forgotten(cache, tmp_path):
    for name in "ab":
        remembered_sha256(large(tmp_path / name))
        (tmp_path / "a").unlink(missing_ok=True)
    assert list(json.loads((cache / "digests.json").read_text())) == [str(tmp_path / "b")]


def test_one_file_has_its_own_digest_and_several_depend_on_names_and_order(cache, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    assert digest_of_files([a]) == sha256(a)
    lines = f"{sha256(a)}  a\n{sha256(b)}  b\n"
    assert (
        digest_of_files([a, b])
        == hashlib.sha256(lines.encode()).hexdigest()
        != digest_of_files([b, a])
    )
