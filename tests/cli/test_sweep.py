"""Sweeps: a failing point does not stop the others, and rerunning a stopped sweep resumes it."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

from dartree_exp.config import compose, config_hash
from dartree_exp.errors import RunError
from dartree_exp.records.folder import LOCK
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.reader import Run
from dartree_exp.sweeps import launch
from dartree_exp.sweeps.outcomes import Outcome

TOY = ["model=toy", "drafter=random"]
States = Callable[[str], dict[str, int]]
Python = Callable[..., subprocess.CompletedProcess[str]]


def test_a_bad_point_fails_alone_and_is_listed(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    runs.fail(2, RunError("2 verdicts are wrong"))
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2,-1,3", "sweep.check=false"]) == 1
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
    assert not Path("multirun/s/.outcomes").exists()


def test_two_sweeps_never_share_a_nameless_folder(runs: Any) -> None:
    assert runs.code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert runs.code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert runs.budgets == [1, 2, 1, 2]
    assert len(list(Path("multirun").iterdir())) == 2


def test_a_point_locked_by_another_process_is_left_and_reported(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    folder = Path("multirun", "s", config_hash(compose([*TOY, "tree.budget=2"])))
    folder.mkdir(parents=True)
    lock = FolderLock(folder / LOCK)
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2"]) == 3
    lock.release()
    assert runs.budgets == [1]
    assert "1 done, 1 locked by another process" in capsys.readouterr().err


def test_trees_and_a_knob_that_one_lacks_can_be_swept_together(runs: Any, states: States) -> None:
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree=chain,pruned", "tree.width=8,12"]) == 0
    assert states("s") == {"DONE": 3}  # one chain: it does not read the width
    names = {
        Run(status.parent).config["sweep"]["name"]
        for status in Path("multirun/s").glob("*/status.json")
    }
    assert names == {"s"}


def test_stop_starts_no_more_but_counts_what_is_done(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=3"]) == 0
    runs.fail(2, RunError("2 verdicts are wrong"))
    assert (
        runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2,3,4", "sweep.on_error=stop"]) == 1
    )
    assert runs.budgets == [3, 1, 2]
    assert states("s") == {"DONE": 2, "FAILED": 1}
    captured = capsys.readouterr()
    assert "1 done, 1 done before, 1 failed, 1 not started" in captured.err
    assert "NOT STARTED [3] tree.budget=4: another point failed before" in captured.err
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=2,4"]) == 1  # the default continues
    assert runs.budgets[-1] == 4


def test_a_sweep_says_where_it_stands_after_every_point(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    runs.fail(2, RunError("2 verdicts are wrong"))
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree=chain,pruned", "tree.budget=1,2"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sweep s: ")]
    assert [line.split()[2] for line in lines] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert "1 done, 1 failed, 2 left, about 0:00:0" in lines[1] and lines[3].endswith(
        "2 done, 2 failed"
    )


def test_a_searching_sweeper_gets_the_objective(runs: Any) -> None:
    def work(config: Any, folder: Any) -> None:
        folder.write_summary({"tau_macro": {"value": 2.5}, "speedup": {"value": None}})
        folder.done()

    runs.special[2] = work
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=2"]) == 0
    folder = str(Path("multirun", "s", config_hash(compose([*TOY, "tree.budget=2"]))))
    done = Outcome(0, [], "SKIPPED", folder)
    assert launch._objective(done, "tau_macro") == 2.5
    assert launch._objective(done, "speedup") is None
    assert launch._objective(Outcome(0, [], "FAILED", folder), "tau_macro") is None


@pytest.mark.parametrize(
    ("choice", "plugin", "extra"),
    [
        ("hydra/launcher=cores", "hydra/launcher/joblib", "joblib"),
        ("hydra/launcher=slurm", "hydra/launcher/submitit_slurm", "cluster"),
        ("hydra/sweeper=search", "hydra/sweeper/optuna", "optuna"),
    ],
)
def test_a_missing_extra_is_named(
    runs: Any,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    plugin: str,
    extra: str,
) -> None:
    group, _, name = plugin.rpartition("/")
    options: Any = ConfigStore.instance().repo
    for part in group.split("/"):
        options = options[part]
    monkeypatch.delitem(options, f"{name}.yaml", raising=False)
    monkeypatch.setattr(Plugins.instance(), "_initialize", lambda: None)  # finds no plugin again
    assert runs.code(["-m", *TOY, "tree.budget=1,2", choice]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert plugin in line and f"dartree_exp[{extra}]" in line


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
sweep = ["sweep.name=s", "tree.budget=1,2,-1,3", "sweep.check=false"]
sys.exit(main(["-m", "model=toy", "drafter=random", *sweep]))
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
    script = KILLED.replace("os.kill(os.getpid(), 9)", "__import__('time').sleep(60)").replace(
        "1,2,-1,3", "2"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
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
