"""The command line as users meet it: fast, one line for a mistake, honest exit statuses."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.errors import RunError
from dartree_exp.records.environment import COMMAND, command
from dartree_exp.records.folder import LOCK, RunFolder
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.reader import Run
from dartree_exp.sweeps import launch
from sample_records import sample

TOY = ["model=toy", "drafter=random", "tree.budget=64"]
States = Callable[[str], dict[str, int]]
Python = Callable[..., subprocess.CompletedProcess[str]]


def test_a_run_lands_in_the_folder_of_its_hash_and_is_done_once(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    folder = Path("multirun", "runs", config_hash(compose(TOY)))
    assert runs.code(TOY) == 0
    assert Run(folder).state == "DONE"
    assert Run(folder).config["tree"]["scoring"] == "marginal"
    assert runs.code(TOY) == 0
    assert "already done" in capsys.readouterr().out
    assert runs.budgets == [64]
    assert runs.code([*TOY, "force=true"]) == 0
    assert runs.budgets == [64, 64]


def test_a_run_is_bound_to_the_content_of_its_files(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    """Here the prompts; target, drafter and calibration go the same way
    (tests/config/test_inputs.py).
    """
    prompts = Path("prompts.jsonl")
    prompts.write_text('{"turns": ["one"]}\n')
    settings = [*TOY, f"benchmark.path={prompts}"]

    def decode(config: Any, folder: RunFolder) -> None:
        folder.append(sample("p", []))
        folder.done()

    runs.special[64] = decode
    assert runs.code(settings) == 0
    prompts.write_text('{"turns": ["two"]}\n')
    assert runs.code(settings) == 1
    said = capsys.readouterr().err
    assert (
        "made with other files: prompts (sha256 " in said
        and "force=true" in said
        and "Traceback" not in said
    )
    assert runs.code([*settings, "force=true"]) == 0
    assert runs.budgets == [64, 64]
    prompts.write_text('{"turns": ["one"]}\n')
    assert (
        runs.code(["-m", *settings, "tree.budget=64", "sweep.name=s"]) == 0
    )  # another folder: nothing held against it


def test_records_lost_after_the_end_are_reported_and_completed(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    runs.special[64] = lambda config, folder: (folder.append(sample("p", [])), folder.done())
    assert runs.code(TOY) == 0
    folder = Path("multirun", "runs", config_hash(compose(TOY)))
    (folder / "samples.jsonl").unlink()
    assert Run(folder).state == "INTERRUPTED"
    assert runs.code(TOY) == 0
    assert (
        "samples.jsonl is gone: missing samples and rounds are decoded again"
        in capsys.readouterr().err
    )
    assert Run(folder).state == "DONE" and runs.budgets == [64, 64]


def test_the_recorded_command_is_what_was_typed(runs: Any) -> None:
    runs.special[7] = lambda config, folder: (
        folder.write_environment({"command": command()}),
        folder.done(),
    )
    assert (
        runs.code(
            [
                "-m",
                *TOY,
                "+method=ddtree",
                "tree.scoring=null",
                "tree.budget=7",
                "decoding.stop_strings=['a b']",
            ]
        )
        == 0
    )
    [status] = Path("multirun").glob("*/*/status.json")
    assert Run(status.parent).environment["command"] == (
        "python -m dartree_exp -m model=toy drafter=random tree.budget=64 +method=ddtree "
        "tree.scoring=null tree.budget=7 "
        """'decoding.stop_strings=['"'"'a b'"'"']'"""
    )
    assert COMMAND not in os.environ


def test_a_program_that_calls_the_library_is_named_without_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        sys, "orig_argv", ["/usr/bin/python3", "-f", "/home/somebody/work/mine.py", "x y"]
    )
    assert command() == "python -f mine.py 'x y'"


@pytest.mark.parametrize("mode", [[], ["-m"]], ids=["run", "sweep"])
@pytest.mark.parametrize(
    "settings", [["output=file"], ["output=file/below"], ["sweep.name=" + "x" * 300]]
)
def test_a_folder_that_cannot_be_made_is_one_line(
    mode: list[str], settings: list[str], runs: Any, capsys: pytest.CaptureFixture
) -> None:
    Path("file").touch()
    assert runs.code([*mode, *TOY, *settings]) != 0
    said = capsys.readouterr().err.splitlines()
    assert (
        len(said) == 1
        and said[0].startswith("dartree_exp: ")
        and settings[0].partition("=")[2][:20] in said[0]
    )
    assert runs.budgets == [] and [
        path.name for path in Path().iterdir() if path.name != "multirun"
    ] == ["file"]


def test_a_single_run_can_join_a_named_sweep(runs: Any) -> None:
    assert runs.code([*TOY, "sweep.name=mine", "output=elsewhere"]) == 0
    assert Path("elsewhere", "mine", config_hash(compose(TOY)), "status.json").exists()


@pytest.mark.parametrize("error", [RunError("2 verdicts are wrong"), ZeroDivisionError("oops")])
def test_a_failing_run_is_recorded_and_exits_1(
    runs: Any, error: Exception, capsys: pytest.CaptureFixture, states: States
) -> None:
    runs.fail(64, error)
    assert runs.code(TOY) == 1
    said = capsys.readouterr().err
    assert str(error) in said
    assert ("Traceback" in said) == isinstance(error, ZeroDivisionError)
    assert states("runs") == {"FAILED": 1}
    del runs.special[64]
    assert runs.code(TOY) == 0
    assert states("runs") == {"DONE": 1}


def test_a_run_that_says_it_failed_exits_1(runs: Any, capsys: pytest.CaptureFixture) -> None:
    runs.special[64] = lambda config, folder: folder.fail("2 verdicts are wrong")
    assert runs.code(TOY) == 1
    assert "FAILED: 2 verdicts are wrong" in capsys.readouterr().err


def test_an_interrupt_exits_130_and_the_next_command_goes_on(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    runs.fail(64, KeyboardInterrupt())
    assert runs.code(TOY) == 130
    assert states("runs") == {"INTERRUPTED": 1}
    assert "interrupted" in capsys.readouterr().err
    del runs.special[64]
    assert runs.code(TOY) == 0


def test_a_folder_in_use_is_left_alone(runs: Any) -> None:
    folder = Path("multirun", "runs", config_hash(compose(TOY)))
    folder.mkdir(parents=True)
    lock = FolderLock(folder / LOCK)
    assert runs.code(TOY) == 3
    assert runs.budgets == []
    lock.release()
    assert runs.code(TOY) == 0


def test_mistakes_exit_2_before_anything_is_made(runs: Any, capsys: pytest.CaptureFixture) -> None:
    mistakes = {
        "tree.bugdet=16": "did you mean tree.budget?",
        "tree=prund": "did you mean pruned?",
        "tree.budget=-1": "an integer >= 0",
        "benchmark.path=/no/where": "does not exist",
        "--budget=3": "settings are written key=value",
        "hydra/launcher=nosuch": "nosuch",
        "--config-dir=/no/where": "not found",
    }
    for argument, said in mistakes.items():
        assert runs.code([*TOY, argument]) == 2, argument
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and said in lines[0], lines
    assert runs.code(["-m", *TOY, "tree=chain,prund"]) == 2
    assert runs.budgets == []
    assert not Path("multirun").exists() or not list(Path("multirun").iterdir())


def test_a_setting_without_effect_is_reported(runs: Any, capsys: pytest.CaptureFixture) -> None:
    assert runs.code([*TOY, "tree=chain", "tree.width=3"]) == 0
    assert "tree=chain does not read tree.width" in capsys.readouterr().err
    assert runs.code([*TOY, "tree.width=3"]) == 0
    assert "does not read" not in capsys.readouterr().err


def test_own_options_come_from_a_folder(runs: Any, tmp_path: Path) -> None:
    (tmp_path / "mine" / "method").mkdir(parents=True)
    (tmp_path / "mine" / "method" / "wide.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /tree: heap\nmethod: wide\ntree:\n  budget: "
        "7\n"
    )
    assert runs.code(["--config-dir", "mine", *TOY[:2], "+method=wide"]) == 0
    assert runs.budgets == [7]
    [config] = [Run(status.parent).config for status in Path("multirun/runs").glob("*/status.json")]
    assert config["method"] == "wide"


def test_a_launcher_can_ship_the_job_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(launch.job)) is launch.job
    assert (
        launch.job.__module__ == "dartree_exp.sweeps.launch"
    )  # importing it registers the resolver that folders need


@pytest.mark.skipif(shutil.which("srun") is not None, reason="Slurm is here")
def test_a_launcher_that_cannot_start_is_one_line(runs: Any, capsys: pytest.CaptureFixture) -> None:
    assert runs.code(["-m", *TOY, "tree.budget=1,2", "hydra/launcher=slurm"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "srun" in lines[0] and lines[1].endswith("2 without a result") and len(lines) == 2
    assert not list(Path("multirun").iterdir())


@pytest.mark.slow
def test_a_toy_run_from_start_to_table(python: Python, tmp_path: Path) -> None:
    arguments = ["model=toy", "drafter=oracle", "benchmark.limit=1", "decoding.max_new_tokens=16"]
    done = python(tmp_path, "-m", "dartree_exp", *arguments)
    assert done.returncode == 0, done.stderr
    [status] = (tmp_path / "multirun" / "runs").glob("*/status.json")
    assert Run(status.parent).state == "DONE"
    assert {"config.yaml", "environment.json", "samples.jsonl", "rounds.jsonl", "summary.json"} <= {
        file.name for file in status.parent.iterdir()
    }
