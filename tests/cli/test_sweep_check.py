"""Every point is checked before the first one starts; what fails later is one point's; nothing but
runs stays behind.
"""

import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dartree_exp.config import Config, compose, config_hash
from dartree_exp.records.atomic import temporary_name
from dartree_exp.records.folder import RunFolder
from dartree_exp.sweeps.outcomes import SWEEP_ID, Plan, note_plan

TOY = ["model=toy", "drafter=random"]
States = Callable[[str], dict[str, int]]


def test_refused_points_are_listed_and_nothing_is_started_or_written(
    runs: Any, capsys: pytest.CaptureFixture
) -> None:
    assert (
        runs.code(
            ["-m", *TOY, "sweep.name=s", "tree.budget=1,2,-1", "benchmark.path=null,/no/where"]
        )
        == 2
    )
    assert runs.budgets == []
    assert not Path("multirun").exists()
    head, *lines = capsys.readouterr().err.splitlines()
    assert "4 of 6 points cannot work; nothing was started" in head
    nowhere = "benchmark.path=/no/where: does not exist"
    assert lines == [
        f"  [1] tree.budget=1 benchmark.path=/no/where: {nowhere}",
        f"  [3] tree.budget=2 benchmark.path=/no/where: {nowhere}",
        "  [4] tree.budget=-1 benchmark.path=null: tree.budget=-1: must be an integer >= 0 and <= "
        "16384, or auto",
        "  [5] tree.budget=-1 benchmark.path=/no/where: tree.budget=-1: must be an integer >= 0 "
        "and <= 16384, or auto",
    ]


def test_a_mistake_of_all_points_is_one_line(runs: Any, capsys: pytest.CaptureFixture) -> None:
    assert runs.code(["-m", *TOY, "tree.budget=1,2", "engine.threads=0"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == "dartree_exp: engine.threads=0: must be an integer >= 1 and <= 1024, or null"
    assert not Path("multirun").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep.name=../x"], "sweep.name=../x: must be a plain folder name"),
        (
            ["hydra.sweep.dir=multirun/a b"],
            "hydra.sweep.dir=multirun/a b: must end in a plain folder name",
        ),
        (["sweep.name=a,b"], "sweep.name=a,b: a sweep has one sweep.name"),
        (["output=a,b"], "output=a,b: a sweep has one output"),
        (
            ["hydra/sweeper=search", "hydra.sweeper.params={tree.beta: 'interval(-1.0, 0.5)'}"],
            "tree.beta=0.5: must be",
        ),
    ],
)
def test_a_sweep_that_cannot_work_writes_nothing(
    runs: Any, capsys: pytest.CaptureFixture, arguments: list[str], said: str
) -> None:
    assert runs.code(["-m", *TOY, "tree.budget=1,2", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_a_single_run_that_cannot_work_writes_nothing(runs: Any) -> None:
    assert runs.code([*TOY, "sweep.name=../x"]) == 2
    assert not list(Path().iterdir())


def test_whatever_a_point_leaves_broken_is_its_own_failure(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    def break_status(config: Config, folder: RunFolder) -> None:
        folder.done()
        (folder.path / "status.json").write_text("{")

    runs.special[1] = break_status
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2"]) == 1
    assert runs.budgets == [1, 2]
    assert "FAILED [0] tree.budget=1: multirun/s/" in capsys.readouterr().err


def test_an_outcome_that_cannot_be_written_does_not_end_the_sweep_and_is_no_success(
    runs: Any, capsys: pytest.CaptureFixture, states: States
) -> None:
    def fill_disk(config: Config, folder: RunFolder) -> None:
        folder.done()
        shutil.rmtree("multirun/s/.outcomes")
        Path("multirun/s/.outcomes").write_text("")

    runs.special[1] = fill_disk
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2"]) == 1
    assert states("s") == {"DONE": 2}
    said = capsys.readouterr().err
    assert "[0] DONE, which could not be recorded" in said
    assert "2 without a result" in said


def test_a_disk_that_takes_nothing_is_one_line(runs: Any, capsys: pytest.CaptureFixture) -> None:
    Path("multirun").write_text("a file")
    assert runs.code(["-m", *TOY, "tree.budget=1,2"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("dartree_exp: multirun/")


def test_nothing_but_runs_and_tables_stays(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    sweep, run = Path("multirun/s"), config_hash(compose([*TOY, "tree.budget=1"]))
    with monkeypatch.context() as patch:
        patch.setenv(SWEEP_ID, "20260101-000000-dead")
        note_plan(Plan(2, pid=dead), sweep)
        patch.setenv(SWEEP_ID, "20260101-000000-beef")
        note_plan(Plan(2, pid=os.getppid()), sweep)
    left = []
    for folder, pid in product((sweep, sweep / run), (dead, os.getppid())):
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda pid=pid: pid)
            left.append(folder / temporary_name("table.md"))
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_text("half")
    assert runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1"]) == 0
    assert [file.exists() for file in left] == [False, True, False, True]  # the living write on
    assert sorted(path.name for path in sweep.iterdir() if path not in left) == [".outcomes", run]
    assert [path.name for path in (sweep / ".outcomes").iterdir()] == ["20260101-000000-beef"]


def test_a_sweep_says_what_it_is_going_to_cost(runs: Any, capsys: pytest.CaptureFixture) -> None:
    assert (
        runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2", "benchmark.limit=3", "repeats=2"])
        == 0
    )
    first, estimate, time = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith("sweep multirun/s, 2 points; watch it:")
    assert (
        "2 runs of 6 prompts" in estimate
        and "at most 2,304 tokens by the methods, 2,304 by plain" in estimate
    )
    assert "no estimate of the time: no finished run of toy on this machine in multirun" in time
    assert (
        runs.code(["-m", *TOY, "sweep.name=s", "tree.budget=1,2", "benchmark.limit=3", "repeats=2"])
        == 0
    )
    assert "nothing left to run (2 done before)" in capsys.readouterr().out
