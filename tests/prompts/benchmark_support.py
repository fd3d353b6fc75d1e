"""Compose a benchmark's configuration from the shipped YAML, without the rest of the program."""

from pathlib import Path

import yaml

from dartree_exp.config.schema import BenchmarkConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "benchmark"
NAMES = sorted(path.stem for path in CONF.glob("[!_]*.yaml"))


def benchmark(name, /, **changes):
    fields = yaml.safe_load((CONF / "_shared.yaml").read_text()) | yaml.safe_load(
        (CONF / f"{name}.yaml").read_text()
    )
    del fields["defaults"]
    return BenchmarkConfig(**(fields | changes))
