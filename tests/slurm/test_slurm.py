"""A sweep on a real Slurm of one node: the same folders and numbers as in one process."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dartree_exp.records.reader import find_runs

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
MISSING = [
    name for name in NEEDED if shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin") is None
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"no Slurm: {', '.join(MISSING)}; apt-get install --no-install-recommends slurm-wlm "
        "munge",
    ),
]

SWEEP = [
    sys.executable,
    "-m",
    "dartree_exp",
    "-m",
    "model=toy",
    "drafter=oracle",
    "tree.budget=1,-1,4",
    "sweep.check=false",
]
SMALL = ["benchmark.limit=1", "decoding.max_new_tokens=12", "engine.dtype=fp32", "engine.threads=1"]
SLURM = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=5"]


def test_a_sweep_through_slurm(tmp_path: Path) -> None:
    script = Path(__file__).with_name("one_node.sh")
    on_slurm = [script, *SWEEP, *SMALL, *SLURM, "sweep.name=slurm"]
    done = subprocess.run(on_slurm, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr  # one point cannot work
    assert "2 done, 1 failed" in done.stderr
    subprocess.run(
        [*SWEEP, *SMALL, "sweep.name=here"], cwd=tmp_path, capture_output=True, timeout=300
    )

    def results(sweep: str) -> dict[str, list]:
        found = find_runs(tmp_path / "multirun" / sweep)
        return {
            run.path.name: [run.state, [(s.ids, s.acceptance_lengths) for s in run.samples]]
            for run in found
        }

    assert sorted(state for state, _ in results("slurm").values()) == ["DONE", "DONE", "FAILED"]
    assert results("slurm") == results("here")
    assert (
        len(list((tmp_path / "multirun" / "slurm" / ".submitit").glob("*/*_result.pkl"))) == 3
    )  # it was Slurm's work
