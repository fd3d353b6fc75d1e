"""The command line as users meet it: fast, one line for a mistake, honest exit statuses, sweeps that survive."""

import json
import os
import pickle
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dartree_exp import launch
from dartree_exp.__main__ import main
from dartree_exp.config import Config, compose, config_hash
from dartree_exp.errors import RunError
from dartree_exp.records.folder import LOCK, RunFolder
from dartree_exp.records.lock import FolderLock
from dartree_exp.records.reader import Run

TOY = ["model=toy", "drafter=random"]
Work = Callable[[Config, RunFolder], None]


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


class Runs:
    """Stands in for `dartree_exp.run`: counts its calls by budget, and does what a test says for some of them."""

    def __init__(self) -> None:
        self.budgets: list[int] = []
        self.special: dict[int, Work] = {}

    def __call__(self, config: Config, folder: RunFolder) -> None:
        budget = config.tree.budget
        self.budgets.append(budget)
        self.special.get(budget, lambda config, folder: None)(config, folder)
        folder.done()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Runs]:
    """The command line in an empty folder, without models."""
    import dartree_exp.report

    fake = types.ModuleType("dartree_exp.run")
    fake.run = Runs()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dartree_exp.run", fake)
    monkeypatch.setattr(dartree_exp.report, "comparison", lambda f, console, output: print(f"compared {len(f)}"))
    monkeypatch.chdir(tmp_path)
    yield fake.run


def states(sweep: str) -> dict[str, int]:
    """How many run folders of a sweep are in which state."""
    found: dict[str, int] = {}
    for status in Path("multirun", sweep).glob("*/status.json"):
        state = Run(status.parent).state
        found[state] = found.get(state, 0) + 1
    return found


def raise_(error: BaseException) -> Work:
    def work(config: Config, folder: RunFolder) -> None:
        raise error

    return work


# One point ----------------------------------------------------------------------------------------------------------


def test_a_run_lands_in_the_folder_of_its_hash_and_is_done_once(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    folder = Path("multirun", "runs", config_hash(compose(TOY)))
    assert _code(TOY) == 0
    assert Run(folder).state == "DONE"
    assert Run(folder).config["tree"]["scoring"] == "marginal"
    assert _code(TOY) == 0
    assert "done already" in capsys.readouterr().out
    assert runs.budgets == [64]
    assert _code([*TOY, "force=true"]) == 0
    assert runs.budgets == [64, 64]


def test_a_single_run_can_join_a_named_sweep(runs: Runs) -> None:
    assert _code([*TOY, "sweep.name=mine", "output=elsewhere"]) == 0
    assert Path("elsewhere", "mine", config_hash(compose(TOY)), "status.json").exists()


@pytest.mark.parametrize("error", [RunError("2 verdicts are wrong"), ZeroDivisionError("oops")])
def test_a_failing_run_is_recorded_and_exits_1(runs: Runs, error: Exception, capsys: pytest.CaptureFixture) -> None:
    runs.special[64] = raise_(error)
    assert _code(TOY) == 1
    said = capsys.readouterr().err
    assert str(error) in said
    assert ("Traceback" in said) == isinstance(error, ZeroDivisionError)
    assert states("runs") == {"FAILED": 1}
    del runs.special[64]
    assert _code(TOY) == 0
    assert states("runs") == {"DONE": 1}


def test_a_run_that_says_it_failed_exits_1(runs: Runs) -> None:
    runs.special[64] = lambda config, folder: folder.fail("wrong")
    runs.__class__ = type(
        "Silent", (Runs,), {"__call__": lambda self, config, folder: self.special[64](config, folder)}
    )
    assert _code(TOY) == 1


def test_an_interrupt_exits_130_and_the_next_command_goes_on(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    runs.special[64] = raise_(KeyboardInterrupt())
    assert _code(TOY) == 130
    assert states("runs") == {"INTERRUPTED": 1}
    assert "interrupted" in capsys.readouterr().err
    del runs.special[64]
    assert _code(TOY) == 0


def test_a_folder_in_use_is_left_alone(runs: Runs) -> None:
    folder = Path("multirun", "runs", config_hash(compose(TOY)))
    folder.mkdir(parents=True)
    lock = FolderLock(folder / LOCK)
    assert _code(TOY) == 3
    assert runs.budgets == []
    lock.release()
    assert _code(TOY) == 0


def test_mistakes_exit_2_before_anything_is_made(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    mistakes = {
        "tree.bugdet=16": "did you mean tree.budget?",
        "tree=prund": "did you mean pruned?",
        "tree.budget=-1": "an integer >= 0",
        "benchmark.path=/no/where": "nothing lies there",
        "--budget=3": "settings are written key=value",
        "hydra/launcher=nosuch": "nosuch",
        "--config-dir=/no/where": "not found",
    }
    for argument, said in mistakes.items():
        assert _code([*TOY, argument]) == 2, argument
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and said in lines[0], lines
    assert _code(["-m", *TOY, "tree=chain,prund"]) == 2
    assert runs.budgets == []
    assert not Path("multirun").exists() or not list(Path("multirun").iterdir())


def test_a_knob_without_effect_is_said(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    assert _code([*TOY, "tree=chain", "tree.width=3"]) == 0
    assert "tree=chain does not read tree.width" in capsys.readouterr().err
    assert _code([*TOY, "tree.width=3"]) == 0
    assert "does not read" not in capsys.readouterr().err


def test_own_options_come_from_a_folder(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "mine" / "method").mkdir(parents=True)
    (tmp_path / "mine" / "method" / "wide.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /tree: heap\nmethod: wide\ntree:\n  budget: 7\n"
    )
    assert _code(["--config-dir", "mine", *TOY, "+method=wide"]) == 0
    assert runs.budgets == [7]
    [config] = [Run(status.parent).config for status in Path("multirun/runs").glob("*/status.json")]
    assert config["method"] == "wide"


# Sweeps -------------------------------------------------------------------------------------------------------------


def test_a_bad_point_fails_alone_and_is_listed(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    runs.special[2] = raise_(RunError("2 verdicts are wrong"))
    assert _code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2,-1,3"]) == 1
    assert runs.budgets == [1, 2, 3]
    assert states("s") == {"DONE": 2, "FAILED": 2}
    captured = capsys.readouterr()
    assert "compared 2" in captured.out
    end = captured.err.splitlines()
    start = next(index for index, line in enumerate(end) if line.startswith("sweep "))
    assert end[start].endswith("2 done, 2 failed")
    assert "tree.budget=2: 2 verdicts are wrong" in end[start + 1]
    assert "tree.budget=-1: tree.budget=-1: must be an integer >= 0" in end[start + 2]


def test_an_interrupted_sweep_resumes_without_repeating(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    sweep = ["-m", *TOY, "sweep.name=s", "tree.budget=1,2,3"]
    runs.special[2] = raise_(KeyboardInterrupt())
    assert _code(sweep) == 130
    assert states("s") == {"DONE": 1, "INTERRUPTED": 1}
    assert "1 done, 1 interrupted" in capsys.readouterr().err
    runs.special.clear()
    assert _code(sweep) == 0
    assert runs.budgets == [1, 2, 2, 3]
    assert states("s") == {"DONE": 3}
    assert "2 done, 1 done before" in capsys.readouterr().err
    assert not list(Path("multirun/s/.outcomes").iterdir())


def test_two_sweeps_never_share_a_nameless_folder(runs: Runs) -> None:
    assert _code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert _code(["-m", *TOY, "tree.budget=1,2"]) == 0
    assert runs.budgets == [1, 2, 1, 2]
    assert len(list(Path("multirun").iterdir())) == 2


def test_a_point_in_other_hands_is_left_and_said(runs: Runs, capsys: pytest.CaptureFixture) -> None:
    folder = Path("multirun", "s", config_hash(compose([*TOY, "tree.budget=2"])))
    folder.mkdir(parents=True)
    lock = FolderLock(folder / LOCK)
    assert _code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2"]) == 3
    lock.release()
    assert runs.budgets == [1]
    assert "1 done, 1 in other hands" in capsys.readouterr().err


def test_trees_and_a_knob_that_one_lacks_can_be_swept_together(runs: Runs) -> None:
    assert _code(["-m", *TOY, "sweep.name=s", "tree=chain,pruned", "tree.width=8,12"]) == 0
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


def test_a_killed_sweep_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = python("-c", KILLED, folder=tmp_path)
    assert first.returncode == -9
    assert states("s") == {"DONE": 1, "INTERRUPTED": 1}
    second = python("-c", KILLED, folder=tmp_path)
    assert second.returncode == 1, second.stderr
    ran = [line for line in (first.stdout + second.stdout).splitlines() if line.startswith("ran")]
    assert ran == ["ran 1", "ran 2", "ran 2", "ran 3"]
    assert states("s") == {"DONE": 3, "FAILED": 1}


def test_a_launcher_can_ship_the_job_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(launch.job)) is launch.job
    assert launch.job.__module__ == "dartree_exp.launch"  # importing it registers the resolver that folders need


# The process --------------------------------------------------------------------------------------------------------

SECONDS = 2.0
QUICK = {
    "help": (["--help"], 0, "tree.budget=64"),
    "cfg": (["--cfg", "job", "+method=ddtree"], 0, "candidates_follow_budget: true"),
    "info": (["--info"], 0, "pkg://dartree_exp.conf"),
    "mistake": (["tree.bugdet=16"], 2, "did you mean tree.budget?"),
    "value": (["tree.budget=-1"], 2, "must be an integer >= 0"),
}


@pytest.mark.parametrize("case", QUICK)
def test_help_settings_and_mistakes_are_quick_and_load_no_model_library(case: str, tmp_path: Path) -> None:
    arguments, code, said = QUICK[case]
    watch = tmp_path / "sitecustomize.py"
    watch.write_text(
        "import atexit, json, resource, sys\n"
        "def note():\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    heavy = sorted({'torch', 'transformers', 'wandb', 'datasets', 'matplotlib'} & set(sys.modules))\n"
        "    json.dump([used.ru_utime + used.ru_stime, heavy], open('note.json', 'w'))\n"
        "atexit.register(note)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dartree_exp", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    if code:
        assert len(done.stderr.splitlines()) == 1
    seconds, heavy = json.loads((tmp_path / "note.json").read_text())
    assert heavy == []
    assert seconds < SECONDS  # of processor time: the machine may be busy


def test_a_terminated_run_is_recorded_as_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.slow
def test_a_toy_run_from_start_to_table(tmp_path: Path) -> None:
    arguments = ["model=toy", "drafter=oracle", "benchmark.limit=1", "decoding.max_new_tokens=16"]
    done = python("-m", "dartree_exp", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    [status] = (tmp_path / "multirun" / "runs").glob("*/status.json")
    assert Run(status.parent).state == "DONE"
    assert {"config.yaml", "environment.json", "samples.jsonl", "rounds.jsonl", "summary.json"} <= {
        file.name for file in status.parent.iterdir()
    }


def _code(arguments: list[str]) -> int:
    """The exit status of the command line in this process."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
