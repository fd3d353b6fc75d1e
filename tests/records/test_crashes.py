"""Run folders after a kill, on a full disk, with damaged lines, and in use by another process."""

import errno
import os
import signal
import subprocess
import sys

import pytest
from test_run_folder import finished, opened, rounds_of, sample, status

from dartree_exp.records import (
    FolderBusy,
    RecordError,
    Run,
    files,
)


def test_two_processes_never_share_a_folder(tmp_path):
    code = (
        "import sys\nfrom dartree_exp.records import RunFolder, FolderBusy\n"
        "try:\n    RunFolder.open(sys.argv[1], '', 'hash1')\nexcept FolderBusy as busy:\n    "
        "print(busy)\n"
    )
    with opened(tmp_path):
        out = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == f"{tmp_path} is in use by process {os.getpid()}"
        with pytest.raises(FolderBusy):
            opened(tmp_path)
        assert Run(tmp_path).state == "RUNNING"
    opened(tmp_path).close()


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from test_run_folder import opened, rounds_of, sample
from pathlib import Path
folder = opened(Path(sys.argv[1]))
for number in range(10_000):
    record = sample(f"p{number}")
    folder.append(record, rounds_of(record))
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_and_frees_the_folder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path, os.path.dirname(__file__)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        while (last := int(process.stdout.readline())) < 20:
            pass
        process.send_signal(signal.SIGKILL)
        last = max([last, *map(int, process.stdout.read().split())])
    assert Run(tmp_path).state == "INTERRUPTED"  # status.json still has RUNNING
    with opened(tmp_path) as folder:
        assert len(finished(folder)) >= last + 1
        assert folder.samples()[last] == sample(f"p{last}")
        assert len(status(tmp_path)["resumed"]) == 1
    run = Run(tmp_path)
    assert len(run.rounds) == 2 * len(run.samples)


def test_torn_last_lines_and_orphaned_rounds_are_removed_on_open(tmp_path):
    with opened(tmp_path) as folder:
        folder.append(sample("a"), rounds_of(sample("a")))
        folder.append(sample("b"), rounds_of(sample("b")))
    lines = (tmp_path / "samples.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "samples.jsonl").write_text(lines[0] + lines[1][:40])
    with open(tmp_path / "rounds.jsonl", "a") as file:
        file.write('{"id": "c", "tu')
    assert [s.id for s in Run(tmp_path).samples] == ["a"]
    assert [r.id for r in Run(tmp_path).rounds] == ["a", "a"]
    with opened(tmp_path) as folder:
        assert finished(folder) == {("a", 0)}
        assert (tmp_path / "samples.jsonl").read_text() == lines[0]
        folder.append(sample("b"), rounds_of(sample("b")))
    assert [r.id for r in Run(tmp_path).rounds] == ["a", "a", "b", "b"]
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) == 4


def test_damage_inside_a_file_is_named_not_repaired(tmp_path):
    with opened(tmp_path) as folder:
        folder.append(sample("a"))  # a sample's rounds may be left out
        folder.append(sample("b"))
    text = (tmp_path / "samples.jsonl").read_text()
    (tmp_path / "samples.jsonl").write_text("{" + text)
    with pytest.raises(RecordError, match=r"samples\.jsonl:1: damaged"):
        opened(tmp_path)


class FullDisk:
    """Writes half of the data, then reports a full disk."""

    def __call__(self, file, data):
        file.write(data[: len(data) // 2])
        file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_explained_and_leaves_earlier_records_valid(tmp_path, monkeypatch):
    with pytest.raises(RecordError, match="no space left on the disk"), opened(tmp_path) as folder:
        folder.append(sample("a"), rounds_of(sample("a")))
        monkeypatch.setattr(files, "_write", FullDisk())
        folder.append(sample("b"), rounds_of(sample("b")))
    monkeypatch.undo()
    assert [s.id for s in Run(tmp_path).samples] == ["a"]
    assert (tmp_path / "rounds.jsonl").read_bytes().endswith(b"}\n")
    with opened(tmp_path) as folder:
        folder.append(sample("b"), rounds_of(sample("b")))
        folder.done()
    assert [s.id for s in Run(tmp_path).samples] == ["a", "b"]


def test_the_cause_survives_when_the_status_cannot_be_written_either(tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ZeroDivisionError), opened(tmp_path):
        monkeypatch.setattr(files.os, "replace", no_space)
        1 / 0  # noqa: B018
    monkeypatch.undo()
    assert Run(tmp_path).state == "INTERRUPTED"
    assert not list(tmp_path.glob(".*.tmp"))
