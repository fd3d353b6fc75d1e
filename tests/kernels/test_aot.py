"""The Triton kernels compile for the GPUs the project names (Ada and Hopper), on a machine without
one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_kernels_compile_for_sm_89_and_sm_90(tmp_path):
    pytest.importorskip("triton")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)  # a cached binary would prove nothing
    script = Path(__file__).with_name("aot_compile.py")
    done = subprocess.run(
        [sys.executable, script, "89", "90"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    built = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(built) == 6 and {line["sm"] for line in built} == {89, 90}
    assert all(line["cubin"] > 1000 and not line["spills"] for line in built)
