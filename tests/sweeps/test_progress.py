"""Where a sweep stands: counted from files, whoever wrote them."""

import os
from collections import Counter

import pytest

from dartree_exp.records import RunFolder
from dartree_exp.sweeps import outcomes
from dartree_exp.sweeps.outcomes import (
    BUSY,
    DONE,
    FAILED,
    SKIPPED,
    Outcome,
    Plan,
    invocation_folder,
    note,
    note_plan,
)
from dartree_exp.sweeps.progress import Progress, progress
from dartree_exp.sweeps.watch import main, overview
from sample_records import sample, write_run


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.setenv(outcomes.SWEEP_ID, "20260101-000000-cafe")
    return tmp_path / "s"


def ended(sweep, *states):
    for number, state in enumerate(states):
        note(Outcome(number, ["tree.budget=1"], state, str(sweep / f"r{number}")), sweep)


def test_time_left_is_measured_on_points_that_worked(sweep):
    note_plan(Plan(12, started=1000.0), sweep)
    ended(sweep, DONE, FAILED, SKIPPED, BUSY)
    # Two points worked in 60 s; eight are left.
    found = progress(invocation_folder(sweep), now=1060.0)
    assert (found.points, found.left, found.running, found.seconds) == (12, 8, 0, 240.0)
    assert found.line() == (
        "[4/12] 1 done, 1 done before, 1 failed, 1 locked by another process, 8 left, "
        "about 0:04:00 to go"
    )


def test_a_point_at_work_counts_by_its_samples(sweep):
    note_plan(Plan(3, started=1000.0), sweep)
    ended(sweep, DONE)
    with RunFolder.open(sweep / "r1", "method: domino\n", "hash") as folder:
        folder.expect(4)
        folder.append(sample("a", [2]))
        folder.append(sample("b", [2]))
        found = progress(invocation_folder(sweep), now=1060.0)
        shown, active = overview(sweep)
    # One point and a half in 60 s; half of this one and a whole other are left.
    assert (found.running, found.left, found.seconds) == (1, 1, 60.0)
    assert active
    assert "1 RUNNING" in str(shown.renderables[1]) and "[1/3] 1 done, 1 running, 1 left" in str(
        shown.renderables[1]
    )


def test_the_watch_names_what_tells_runs_apart_and_what_is_pending(sweep, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for budget in (8, 16):
        config = f"method: dartree_pruned\ntree:\n  budget: {budget}\n"
        with RunFolder.open(sweep / f"r{budget}", config, f"hash{budget}") as folder:
            folder.append(sample("a", [2]))
            folder.done()
    note_plan(
        Plan(3, {"r8": "tree.budget=8", "r16": "tree.budget=16", "r32": "tree.budget=32"}), sweep
    )
    assert main([str(sweep)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "dartree_pruned tree.budget=8" in out and "dartree_pruned tree.budget=16" in out
    assert "r32 │ tree.budget=32 │ PENDING" in out
    assert "runs: 2 DONE, 1 PENDING" in out


def test_what_is_not_known_is_not_said(sweep):
    assert Progress(None, Counter(), 0, None, None).line() == "[0/?] nothing has ended yet"
    note_plan(Plan(2), sweep)
    assert progress(invocation_folder(sweep)).line() == "[0/2] 2 left"


def test_an_invocation_whose_process_is_gone_is_not_alive(sweep):
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    assert (
        not Plan(2, pid=dead).is_alive()
        and Plan(2).is_alive()
        and Plan(2, pid=dead, host="elsewhere").is_alive()
    )


def test_watching_what_is_there(sweep, capsys):
    write_run(sweep / "r0", [sample("a", [2])])
    assert main([str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "dartree_pruned" in out and "1/1" in out and "1 DONE" in out
    assert main([str(sweep.parent / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
