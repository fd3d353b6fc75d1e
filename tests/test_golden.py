"""The golden vectors themselves: the subset is complete and unchanged, the full folder is found,
and a folder without cases stops the run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import golden_support
from golden_support import MODEL, SHARED, SUBSET, carried, cases_in, full_folder

ROOT = Path(__file__).parents[1]
FAMILIES = sorted(folder.name for folder in SUBSET.iterdir() if folder.is_dir())


def collect(tests: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The names of the tests that another pytest would run."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    unset = {"DARTREE_SHARED", "DARTREE_REQUIRE_SHARED"}
    rest = {key: value for key, value in os.environ.items() if key not in unset}
    return subprocess.run(
        [*command, tests], cwd=ROOT, env=rest | environment, capture_output=True, text=True
    )


def test_the_subset_is_the_full_folders_bytes():
    """Every file has the checksum that it was cut with, and there are no others."""
    lines = (SUBSET / "MANIFEST.sha256").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {
        file.relative_to(SUBSET).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for family in FAMILIES
        for file in (SUBSET / family).rglob("*")
        if file.is_file()
    }
    assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_is_empty(family):
    assert all(case.spec for case in carried(family))
    if problem := golden_support.missing():
        pytest.skip(f"only the repository's subset was run: {problem}")
    assert cases_in(full_folder(family)), f"{full_folder(family)} holds no cases"


def test_every_family_of_the_full_folder_is_in_the_subset():
    if problem := golden_support.missing():
        pytest.skip(problem)
    there = {file.parent.name for file in (SHARED / "golden").glob("*/*.json")}
    assert there | {MODEL} <= set(FAMILIES)


def test_a_family_without_a_usable_case_is_an_error():
    with pytest.raises(AssertionError, match="pctree holds no case that this test can use"):
        golden_support.golden_cases("pctree", lambda case: False)


def test_cases_of_another_folder_are_run(tmp_path):
    """A copy under other names, one of them changed: what differs from the subset is run."""
    for family in FAMILIES:
        name = family if family == MODEL else f"golden/{family}"
        shutil.copytree(SUBSET / family, tmp_path / name)
    folder = tmp_path / "golden" / "ddtree_heap"
    for suffix in (".json", ".safetensors"):
        shutil.copy(folder / f"rand_d1_v8_b7{suffix}", folder / f"a_case_of_mine{suffix}")
    changed = folder / "rand_d2_v8_b16.json"
    changed.write_text(changed.read_text() + "\n")
    done = collect("tests/trees/test_golden_ddtree.py", DARTREE_SHARED=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    full = [line.split("[")[1] for line in done.stdout.splitlines() if "[full-" in line]
    assert full == ["full-a_case_of_mine]", "full-rand_d2_v8_b16]"]
    assert "[subset-rand_d2_v8_b16]" in done.stdout


@pytest.mark.parametrize("how", ["named", "CI"])
def test_a_folder_without_cases_stops_the_run(tmp_path, how):
    """Named by the user, or required by `.ci/run`: an error, never a skip."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "tests" / "golden", clone / "tests" / "golden")
    for name in ("conftest.py", "golden_support.py", "shape_checks.py", "test_golden.py"):
        shutil.copy(ROOT / "tests" / name, clone / "tests" / name)
    (tmp_path / "empty").mkdir()
    asked = (
        {"DARTREE_SHARED": str(tmp_path / "empty")}
        if how == "named"
        else {"DARTREE_REQUIRE_SHARED": "1"}
    )
    where = tmp_path / ("empty" if how == "named" else "shared")
    done = collect(str(clone / "tests"), **asked)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert f"{where} holds no golden cases (golden/<family>/<case>.json)" in done.stderr
    assert collect(str(clone / "tests")).returncode == 0  # without either variable the subset runs


def test_ci_requires_the_full_folder():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "export DARTREE_REQUIRE_SHARED=1" in lines
