"""The environment stamp has everything that affects a number, and needs no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dartree_exp.records import describe_environment, environment
from dartree_exp.records.environment import (
    cpu_description,
    git_commit,
    load_average,
    overload,
    usable_cores,
    worst_load,
)


def test_the_stamp_is_json_and_names_versions_machine_and_weights():
    stamp = describe_environment(
        device="cpu", dtype="bf16", threads=2, weights={"target": "ab"}, machine={"matmul_ms": 1.5}
    )
    assert json.loads(json.dumps(stamp)) == stamp
    assert stamp["packages"]["torch"].startswith("2.") and stamp["packages"]["dartree_exp"]
    assert (
        stamp["threads"] == 2
        and stamp["weights"] == {"target": "ab"}
        and stamp["machine"] == {"matmul_ms": 1.5}
    )
    assert stamp["cpu"]["cores"] >= 1 and stamp["cpu"]["model"]
    assert set(stamp["cpu"]["flags"]) <= set(Path("/proc/cpuinfo").read_text().split())


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"start": 0.3, "end": 7.0, "cores": 2}, "load 7 on 2 cores"),
        ({"start": 3.14, "end": None, "cores": 2}, "load 3.1 on 2 cores"),
        (
            {"start": 2.0, "end": 2.2, "cores": 2},
            None,
        ),  # two threads of the run itself, on two cores
        ({"start": 64.2, "end": 63.0, "cores": 64}, None),
        ({"start": None, "cores": 2}, None),  # a system that keeps no count
        ([7.0, 7.0, 7.0], None),  # an older record
        (None, None),
    ],
)
def test_a_load_above_the_cores_is_an_overload(load, said):
    assert overload(load) == said


def test_of_two_loads_the_worst_stays():
    assert worst_load({"start": 1.0, "end": 5.0, "cores": 2}, {"start": 3.0, "cores": 2}) == {
        "start": 3.0,
        "end": 5.0,
        "cores": 2,
    }
    assert worst_load([1.0, 1.0, 1.0], {"start": 2.0, "cores": 4}) == {"start": 2.0, "cores": 4}
    assert worst_load({"start": None, "cores": 2}, {"end": 1.0}) == {"end": 1.0, "cores": 2}


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 2), ("100000 100000", 1), ("max 100000", 8), ("", 8)]
)
def test_a_containers_limit_counts_as_cores(monkeypatch, tmp_path, limit, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(environment, "_CPU_LIMIT", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text(limit)
    assert usable_cores() == cores


def test_a_system_without_a_load_average_has_none(monkeypatch):
    monkeypatch.delattr(os, "getloadavg")
    assert load_average() is None
    assert describe_environment(device="cpu", dtype="bf16", threads=1)["load"]["start"] is None


def test_cpu_without_proc(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert cpu_description()["model"] and cpu_description()["flags"] == []


def test_the_commit_is_only_of_a_checkout_that_tracks_the_files(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True
        )

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert git_commit(package) is None
    git("init")
    (tmp_path / "other").write_text("")
    git("add", "other")
    git("commit", "-m", "x")
    assert git_commit(package) is None  # in the checkout, but not of it
    git("add", "package")
    git("commit", "-m", "y")
    clean = git_commit(package)
    assert len(clean["commit"]) == 40 and not clean["dirty"]
    (package / "__init__.py").write_text("1")
    one = git_commit(package)
    assert (one["commit"], one["dirty"]) == (clean["commit"], True)
    (package / "__init__.py").write_text("2")
    assert (
        git_commit(package)["changes"] != one["changes"]
    )  # two states between commits are two versions


def test_records_do_not_import_torch():
    code = "import sys, dartree_exp.records; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
