"""If the reader of the output has exited (`| head`), only the output is lost."""

import os
import subprocess
import sys

import pytest

from sample_records import sample, write_run


def with_closed_output(folder, *arguments):
    """Run a module whose standard output has no reader; (exit status, standard error)."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


def test_a_report_writes_its_page_all_the_same(tmp_path):
    for name in ("a", "b"):
        write_run(tmp_path / "s" / name, [sample(f"p{i}", [2, 3]) for i in range(3)])
    assert with_closed_output(tmp_path, "dartree_exp.report", "s", "--html", "page.html") == (0, "")
    assert "</html>" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "s" / "comparison.md").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["dartree_exp", "--help"],
        ["dartree_exp", "--cfg", "job"],
        ["dartree_exp.generate", "--help"],
        ["dartree_exp.watch", "s"],
    ],
)
def test_no_command_minds(tmp_path, arguments):
    write_run(tmp_path / "s" / "a", [sample("p", [2, 3])])
    assert with_closed_output(tmp_path, *arguments) == (0, "")


@pytest.mark.slow
def test_a_run_continues(tmp_path):
    small = [
        "benchmark.limit=1",
        "decoding.max_new_tokens=4",
        "engine.threads=1",
        "engine.dtype=fp32",
    ]
    assert (
        with_closed_output(tmp_path, "dartree_exp", "model=toy", "drafter=oracle", *small)[0] == 0
    )
    assert '"DONE"' in next((tmp_path / "multirun" / "runs").glob("*/status.json")).read_text()
