"""Help, settings and mistakes answer at once, without a model library."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from dartree_exp.generate import main as generate_main

SECONDS = 2.0


QUICK = {
    "help": (["--help"], 0, "tree.budget=auto"),
    "cfg": (["--cfg", "job", "+method=ddtree"], 0, "candidates_follow_budget: true"),
    "methods": (["--help"], 0, "  dflash                            DFlash: one greedy chain"),
    "launchers": (["--help"], 0, "hydra/launcher  basic, cores, jobs, slurm"),
    "sweepers": (["--help"], 0, "hydra/sweeper   basic, search"),
    "version": (["--version"], 0, f"dartree_exp {metadata.version('dartree_exp')}"),
    "completion": (
        ["-sc", "install=bash"],
        0,
        "complete -o nospace -o default -F hydra_bash_completion dartree_exp",
    ),
    "rerun": (["--experimental-rerun", "x"], 2, "unknown flag"),
    "info": (["--info"], 0, "pkg://dartree_exp.conf"),
    "mistake": (["tree.bugdet=16"], 2, "did you mean tree.budget?"),
    "value": (["tree.budget=-1"], 2, "must be an integer >= 0"),
}


@pytest.mark.parametrize("case", QUICK)
def test_help_settings_and_mistakes_are_quick_and_load_no_model_library(
    case: str, tmp_path: Path
) -> None:
    arguments, code, said = QUICK[case]
    watch = tmp_path / "sitecustomize.py"
    watch.write_text(
        "import atexit, json, resource, sys\n"
        "def note():\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    heavy = sorted({'torch', 'transformers', 'wandb', 'datasets', 'matplotlib'} & "
        "set(sys.modules))\n"
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


def test_a_shell_completes_options(
    runs: Any, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", "dartree_exp tree=pr")
    assert runs.code(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == ["tree=pruned"]


def test_the_help_of_generate_names_methods_and_keys(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["generate", "--help"])
    assert generate_main() == 0
    out = capsys.readouterr().out
    assert "pctree" in out and "tree.budget=auto" in out and "decoding.temperature" in out
    assert "benchmark." not in out and "sweep." not in out  # nothing that one answer does not read
