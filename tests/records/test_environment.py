"""The stamp names what decides a number, and comes without torch."""

import json
import subprocess
import sys
from pathlib import Path

from dartree_exp.records import describe_environment
from dartree_exp.records.environment import cpu_description, git_commit


def test_the_stamp_is_json_and_names_versions_machine_and_weights():
    stamp = describe_environment(
        device="cpu", dtype="bf16", threads=2, weights={"target": "ab"}, machine={"matmul_ms": 1.5}
    )
    assert json.loads(json.dumps(stamp)) == stamp
    assert stamp["packages"]["torch"].startswith("2.") and stamp["packages"]["dartree_exp"]
    assert stamp["threads"] == 2 and stamp["weights"] == {"target": "ab"} and stamp["machine"] == {"matmul_ms": 1.5}
    assert stamp["cpu"]["cores"] >= 1 and stamp["cpu"]["model"]
    assert set(stamp["cpu"]["flags"]) <= set(Path("/proc/cpuinfo").read_text().split())


def test_cpu_without_proc(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert cpu_description()["model"] and cpu_description()["flags"] == []


def test_the_commit_is_only_of_a_checkout_that_tracks_the_files(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

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
    assert git_commit(package)["changes"] != one["changes"]  # two states between commits are two versions


def test_records_do_not_import_torch():
    code = "import sys, dartree_exp.records; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
