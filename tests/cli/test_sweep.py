"""Sweeps: a failing point fails alone, and whatever stops a sweep, the same command goes on from there."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.errors import RunError
from dartree_exp.records.folder import LOCK
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.reader import Run

TOY = ["model=toy", "drafter=random"]
States = Callable[[str], dict[str, int]]
Python = Callable[..., subprocess.CompletedProcess[str]]


def test_a_bad_point_fails_alone_and_is_listed(runs: Any, capsys: pytest.CaptureFixture, states: States) -> None:
    runs.fail(2, RunError("2 verdicts are wrong"))
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2,-1,3"]) == 1
    assert runs.budgets == [1, 2, 3]
    assert states("s") == {"DONE": 2, "FAILED": 2}
    captured = capsys.readouterr()
    assert "compared 2" in captured.out
    end = captured.err.splitlines()
    start = next(index for index, line in enumerate(end) if line.startswith("sweep "))
    assert end[start].endswith("2 done, 2 failed")
    assert "tree.budget=2: 2 verdicts are wrong" in end[start + 1]
    assert "tree.budget=-1: tree.budget=-1: must be an integer >= 0" in end[start + 2]


def test_an_interrupted_sweep_resumes_without_repeating(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    sweep = ["-m", *TOY, "sweep.name=s", "tree.budget=1,2,3"]
    runs.fail(2, KeyboardInterrupt())
    assert runs.code(sweep) == 130
    assert states("s") == {"DONE": 1, "INTERRUPTED": 1}
    assert "1 done, 1 interrupted" in capsys.readouterr().err
    runs.special.clear()
    assert runs.code(sweep) == 0
    assert runs.budgets == [1, 2, 2, 3]
    assert states("s") == {"DONE": 3}
    assert "2 done, 1 done before" in capsys.readouterr().err
    assert not list(Path("multirun/s/.outcomes").iterdir())


def test_two_sweeps_never_share_a_nameless_folder(runs: Any) -> None:
    assert runs.code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert runs.code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert runs.budgets == [1, 2, 1, 2]
    assert len(list(Path("multirun").iterdir())) == 2


def test_a_point_in_other_hands_is_left_and_said(runs: Any, capsys: pytest.CaptureFixture) -> None:
    folder = Path("multirun", "s", config_hash(compose([*TOY, "tree.budget=2"])))
    folder.mkdir(parents=True)
    lock = FolderLock(folder / LOCK)
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2"]) == 3
    lock.release()
    assert runs.budgets == [1]
    assert "1 done, 1 in other hands" in capsys.readouterr().err


def test_trees_and_a_knob_that_one_lacks_can_be_swept_together(runs: Any, states: States) -> None:
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree=chain,pruned", "tree.width=8,12"]) == 0
    assert states("s") == {"DONE": 3}  # one chain: it does not read the width
    names = {Run(status.parent).config["sweep"]["name"] for status in Path("multirun/s").glob("*/status.json")}
    assert names == {"s"}


KILLED = """
import os, sys, types
fake = types.ModuleType("dartree_exp.run")
def run(config, folder):
    print("ran", config.tree.budget, flush=True)
    if config.tree.budget == 2 and not os.path.exists("once"):
        open("once", "w").close()
        os.kill(os.getpid(), 9)
    folder.done()
fake.run = run
sys.modules["dartree_exp.run"] = fake
import dartree_exp.report
dartree_exp.report.comparison = lambda folders, console, output: None
from dartree_exp.__main__ import main
sys.exit(main(["-m", "model=toy", "drafter=random", "sweep.name=s", "tree.budget=1,2,-1,3"]))
"""


def test_a_killed_sweep_resumes(
    python: Python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: States
) -> None:
    monkeypatch.chdir(tmp_path)
    first = python(tmp_path, "-c", KILLED)
    assert first.returncode == -9
    assert states("s") == {"DONE": 1, "INTERRUPTED": 1}
    second = python(tmp_path, "-c", KILLED)
    assert second.returncode == 1, second.stderr
    ran = [line for line in (first.stdout + second.stdout).splitlines() if line.startswith("ran")]
    assert ran == ["ran 1", "ran 2", "ran 2", "ran 3"]
    assert states("s") == {"DONE": 3, "FAILED": 1}


def test_a_terminated_run_is_recorded_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: States
) -> None:
    monkeypatch.chdir(tmp_path)
    script = KILLED.replace("os.kill(os.getpid(), 9)", "__import__('time').sleep(60)").replace("1,2,-1,3", "2")
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "once").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143
    assert states("s") == {"INTERRUPTED": 1}
