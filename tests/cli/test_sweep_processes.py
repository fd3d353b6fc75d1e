"""Whole sweeps of the toy target in real processes: killed, shared between shells, and on every
launcher.
"""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dartree_exp.records.reader import Run, find_runs
from dartree_exp.sweeps.watch import overview

pytestmark = pytest.mark.slow

SMALL = [
    "decoding.max_new_tokens=12",
    "engine.dtype=fp32",
    "engine.threads=1",
    "baseline=shared",
    "decoding.stop_strings=['a b']",
]
SWEEP = [
    sys.executable,
    "-m",
    "dartree_exp",
    "-m",
    "model=toy",
    "drafter=oracle",
    "sweep.name=s",
    *SMALL,
]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SWEEP, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(folder: Path, *arguments: str) -> tuple[int, str]:
    process = start(folder, *arguments)
    out, _ = process.communicate(timeout=300)
    return process.returncode, out


def states(folder: Path) -> dict[str, int]:
    found = [
        Run(status.parent).state for status in (folder / "multirun" / "s").glob("*/status.json")
    ]
    return {state: found.count(state) for state in sorted(set(found))}


def test_twelve_points_two_bad_ones_a_kill_and_a_restart(tmp_path: Path) -> None:
    # -1 and -2 are refused before a model loads, at every start.
    points = ["tree.budget=1,2,3,-1,4,5,6,7,8,-2,9,10", "benchmark.limit=4", "sweep.check=false"]
    process = start(tmp_path, *points)
    deadline = time.monotonic() + 120
    while (found := states(tmp_path)).get("DONE", 0) < 3 or not found.get("RUNNING"):
        assert process.poll() is None and time.monotonic() < deadline, found
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = {run.path.name: run for run in find_runs(tmp_path / "multirun" / "s")}
    assert states(tmp_path).get("INTERRUPTED", 0) <= 1  # 0 where it ended in that very moment
    held = {name: len(run.samples) for name, run in before.items()}

    code, out = finish(tmp_path, *points)
    assert code == 1, out
    assert states(tmp_path) == {"DONE": 10, "FAILED": 2}
    assert out.count("FAILED [") == 2 and "tree.budget=-2: must be an integer >= 0" in out
    for run in find_runs(tmp_path / "multirun" / "s"):
        if run.state == "FAILED":
            continue
        assert len(run.samples) == 4  # the reader refuses a sample that is recorded twice
        old = before.get(run.path.name)
        if old is not None and old.state == "DONE":
            assert run.status == old.status  # not opened again
        if held.get(run.path.name):  # what was on disk before the kill is still that
            assert run.samples[: held[run.path.name]] == old.samples  # type: ignore[union-attr]

    code, out = finish(tmp_path, *points)
    assert code == 1 and "10 done before, 2 failed" in out


def test_a_terminated_sweep_keeps_the_running_prompt_starts_no_more_and_goes_on(
    tmp_path: Path,
) -> None:
    points = ["tree.budget=1,2", "benchmark.limit=12", "decoding.max_new_tokens=96"]
    process = start(tmp_path, *points)
    deadline = time.monotonic() + 120
    while not any(
        run.samples
        for run in map(Run, (f.parent for f in (tmp_path / "multirun" / "s").glob("*/status.json")))
    ):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, out
    [run] = find_runs(tmp_path / "multirun" / "s")
    assert run.state == "INTERRUPTED" and "Terminated" in run.status["message"]
    assert 0 < len(run.samples) < 12 and run.environment["load"].keys() >= {"start", "end"}
    code, out = finish(tmp_path, *points)
    assert code == 0 and states(tmp_path) == {"DONE": 2}, out


def test_two_shells_share_a_sweep_and_run_nothing_twice(tmp_path: Path) -> None:
    points = ["tree.budget=1,2,3,4,5,6", "benchmark.limit=3"]
    shells = [start(tmp_path, *points) for _ in range(2)]
    said = [shell.communicate(timeout=300)[0] for shell in shells]
    assert {shell.returncode for shell in shells} <= {0, 3}, said  # 3: the other one was at a point
    runs = find_runs(tmp_path / "multirun" / "s")
    assert states(tmp_path) == {"DONE": 6}
    assert all(len(run.samples) == 3 and not run.status["resumed"] for run in runs)
    assert {run.status["pid"] for run in runs} <= {shell.pid for shell in shells}
    assert sum(out.count("prompt 3/3") for out in said) == 6
    # Plain decoding is one answer per prompt for both shells, also where both decoded it.
    [folder] = (tmp_path / "multirun" / "s" / ".ar").iterdir()
    assert len(list(folder.iterdir())) == 3
    assert len({json.dumps([sample.ar for sample in run.samples]) for run in runs}) == 1


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What three points give one after the other in one process."""
    folder = tmp_path_factory.mktemp("basic")
    assert finish(folder, *POINTS)[0] == 0
    return results(folder)


POINTS = ["tree.budget=1,2,4", "benchmark.limit=2"]
LAUNCHERS = {
    "cores": ["hydra/launcher=cores"],
    "jobs": ["hydra/launcher=jobs", "hydra.sweeper.max_batch_size=2"],
}


def results(folder: Path) -> dict[str, object]:
    """By run folder: ids, acceptance lengths and tau."""
    runs = find_runs(folder / "multirun" / "s")
    assert {run.state for run in runs} == {"DONE"}
    return {
        run.path.name: [
            run.summary["tau_macro"],
            [(s.key, s.ids, s.acceptance_lengths) for s in run.samples],
        ]  # type: ignore[index]
        for run in runs
    }


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_changes_nothing_but_the_process(
    launcher: str, basic: dict[str, object], tmp_path: Path
) -> None:
    code, out = finish(tmp_path, *POINTS, *LAUNCHERS[launcher])
    assert code == 0, out
    assert "3 done" in out.splitlines()[-1]
    assert results(tmp_path) == basic
    runs = find_runs(tmp_path / "multirun" / "s")
    assert len({run.status["pid"] for run in runs}) > 1
    typed = shlex.join(["python", *SWEEP[1:], *POINTS, *LAUNCHERS[launcher]])
    assert {run.environment["command"] for run in runs} == {typed}
    shown, active = overview(tmp_path / "multirun" / "s")
    assert not active and "3 DONE" in str(shown.renderables[1])


def test_a_job_that_is_killed_is_one_line_and_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'submitit.core._submit' in ' '.join(sys.orig_argv) and not os.path.exists('once'):\n"
        "    open('once', 'w').close()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out = finish(tmp_path, "tree.budget=1", "benchmark.limit=1", "hydra/launcher=jobs")
    assert code == 1
    assert "Traceback" not in out and str(tmp_path) not in out
    [line] = [line for line in out.splitlines() if line.startswith("dartree_exp: ")]
    assert (
        "a job ended without a result (UncompletedJobError; logs in multirun/s/.submitit)" in line
    )
    assert out.splitlines()[-1] == "sweep multirun/s: 1 without a result"
    code, out = finish(tmp_path, "tree.budget=1", "benchmark.limit=1", "hydra/launcher=jobs")
    assert code == 0 and not (tmp_path / "multirun" / "s" / ".outcomes").exists()


def test_a_failed_point_and_a_stop_reach_every_process(tmp_path: Path) -> None:
    """The outcomes of workers count: exit status and list are those of the basic launcher."""
    points = ["tree.budget=-1,1,2", "benchmark.limit=1", "sweep.on_error=stop", "sweep.check=false"]
    code, out = finish(tmp_path, *points, "hydra/launcher=cores", "hydra.launcher.n_jobs=1")
    assert code == 1 and "1 failed, 2 not started" in out
    assert states(tmp_path) == {"FAILED": 1}


def test_a_search_maximises_its_objective(tmp_path: Path) -> None:
    search = [
        "hydra/sweeper=search",
        "hydra.sweeper.n_trials=4",
        "benchmark.limit=1",
        "drafter=random",
    ]
    code, out = finish(tmp_path, *search, "tree.candidates=32")
    assert code == 0, out
    found = OmegaConf.load(tmp_path / "multirun" / "s" / "optimization_results.yaml")
    taus = [run.summary["tau_macro"]["value"] for run in find_runs(tmp_path / "multirun" / "s")]  # type: ignore[index]
    assert found.best_value == max(taus)
    assert set(found.best_params) == {"tree.width", "tree.budget", "tree.beta"}
