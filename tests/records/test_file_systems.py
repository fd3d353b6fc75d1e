"""File systems that are full, read-only, or without folder fsync, locks or hard links; symbolic
links.
"""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_run_folder import finished, opened, rounds_of, sample

from dartree_exp.records import RecordError, Run, RunFolder, atomic, files
from dartree_exp.records.layout import CONFIG, LOCK, RESULTS, STATUS
from dartree_exp.records.lock import is_locked


def run_in(path, **options):
    """A complete run of two samples; samples on disk are kept."""
    with opened(path, **options) as folder:
        folder.expect(2)
        folder.write_environment({"device": "cpu"})
        for name in "ab":
            if (name, 0) not in finished(folder):
                folder.append(sample(name), rounds_of(sample(name)))
        folder.note_load()
        folder.write_summary({"n": 2})
        folder.done()


def test_a_disk_full_at_any_write_is_one_line_and_the_run_resumes(tmp_path, monkeypatch):
    right, calls = files._write, []

    def full(file, data):
        calls.append(data)
        if len(calls) >= fails_at:
            file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        right(file, data)

    for fails_at in range(1, 100):
        folder = tmp_path / str(fails_at)
        calls.clear()
        monkeypatch.setattr(files, "_write", full)
        try:
            run_in(folder)
        except RecordError as error:
            assert "no space left on the disk" in str(error) and "\n" not in str(error)
        else:
            break
        finally:
            monkeypatch.setattr(files, "_write", right)
        if (folder / STATUS).exists():
            assert Run(folder).state in ("INTERRUPTED", "FAILED")
            assert [s.id for s in Run(folder).samples] in ([], ["a"], ["a", "b"])
        assert not list(folder.glob(".*.tmp"))
        run_in(folder)
        assert Run(folder).state == "DONE" and Run(folder).samples == [sample("a"), sample("b")]
        assert Run(folder).rounds == rounds_of(sample("a")) + rounds_of(sample("b"))
    assert fails_at > 10


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_fsync_folders_will_do(tmp_path, monkeypatch, code):
    right = os.fsync

    def fsync(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        right(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    run_in(tmp_path)
    assert Run(tmp_path).state == "DONE"


def test_a_disk_that_fails_to_write_is_not_passed_over(tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RecordError, match="Input/output error"):
        run_in(tmp_path)


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(
        RecordError, match=r"no file locks \(No locks available\).*choose an `output`"
    ):
        run_in(tmp_path)
    (tmp_path / LOCK).touch()
    assert is_locked(tmp_path / LOCK)  # unknown, so a running run is not reported as interrupted


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file/run", "Not a directory"),
        ("file", "File exists"),
        ("x" * 300, "File name too long"),
        ("/proc/none", "No such"),
    ],
)
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, place, message):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=message) as caught:
        RunFolder.open(tmp_path / place, "", "hash1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted({CONFIG, STATUS, LOCK, *RESULTS}))
@pytest.mark.parametrize("dangling", [True, False])
def test_links_in_a_run_folder_are_not_written_through(tmp_path, name, dangling):
    outside, folder = tmp_path / "outside", tmp_path / "run"
    with opened(folder) as run:
        run.append(sample("a"), rounds_of(sample("a")))
    if not dangling:
        outside.write_text("mine\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    with pytest.raises(RecordError, match=rf"{name} is a symbolic link"):
        opened(folder)
    assert outside.exists() != dangling and (dangling or outside.read_text() == "mine\n")
    if name in (STATUS, *RESULTS):
        run_in(folder, force=True)  # removes the link, not what it points to
        assert Run(folder).state == "DONE" and not (folder / name).is_symlink()
        assert outside.exists() != dangling and (dangling or outside.read_text() == "mine\n")


def test_a_link_that_appears_during_a_run_is_not_written_through(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.write_text("mine\n")
    with (
        pytest.raises(RecordError, match=r"samples\.jsonl is a symbolic link"),
        opened(folder) as run,
    ):
        (folder / "samples.jsonl").symlink_to(outside)
        (folder / STATUS).unlink()
        (folder / STATUS).symlink_to(outside)
        run.append(sample("a"), rounds_of(sample("a")))
    assert outside.read_text() == "mine\n" and not (folder / STATUS).is_symlink()


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_run_folder import opened
from dartree_exp.records import files
folder = opened(Path(sys.argv[1]))
files._write = lambda file, data: os.kill(os.getpid(), signal.SIGKILL)
folder.write_summary({})
"""


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_stays(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path, Path(__file__).parent])
    assert killed.returncode == -signal.SIGKILL
    [left] = tmp_path.glob(".*.tmp")
    writing = tmp_path / atomic.temporary_name("table.md")
    writing.touch()
    opened(tmp_path).close()
    assert not left.exists() and writing.exists()


def test_what_another_machine_writes_stays_until_it_is_stale(tmp_path, monkeypatch):
    """On a shared file system, its process id means nothing on this machine."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "another-node")
        elsewhere.setattr("os.getpid", lambda: 2**22 + 5)  # not a process of this machine
        theirs = tmp_path / atomic.temporary_name("table.md")
    theirs.write_text("half")
    atomic.remove_temporaries(tmp_path)
    assert theirs.exists()
    long_ago = time.time() - 10 * atomic._STALE
    os.utime(theirs, (long_ago, long_ago))
    atomic.remove_temporaries(tmp_path)
    assert not theirs.exists()
