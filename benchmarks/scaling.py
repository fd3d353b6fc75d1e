"""How the cost of a round grows: the stages of real rounds, one setting at a time.

    python benchmarks/scaling.py [--axis KEY=VALUES ...] [--limit 2] [--tokens 32] [--repeats 1]
        [--dtype bf16] [--threads 2] [--json FILE] [key=value ...]

An axis is a setting of a run with its values (`--axis tree.budget=4,16,64`), or `context`, the
number of ids before the answer, which is reached by putting other prompts before the prompt.
Default: B, W, D, K and the context. Along an axis all else is as in `key=value` (default DARTree
pruned, B = 64). The shipped drafter decodes the same prompts at every value, in turn. Shown are
medians over rounds: milliseconds of each stage, verified nodes, context; tau, which is a mean; and
milliseconds per token, the median round over tau.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any

from measuring import command, configured, finish, in_turn, options, prepared, quartiles

from dartree_exp.assemble import make_method, make_sampler
from dartree_exp.decode import Round
from dartree_exp.errors import UserError
from dartree_exp.metrics.clock import STAGES
from dartree_exp.runs.arms import Arms

AXES = (
    "tree.budget=4,8,16,32,64,auto",
    "tree.width=4,8,12,16",
    "tree.depth=4,8,16",
    "tree.candidates=16,32,64,128",
    "context=100,200,400,800",
)
FIXED = "tree.budget=64"


@dataclass
class Point:
    """One value of an axis, its arms, and the rounds decoded with it."""

    axis: str
    value: str
    arms: Arms
    rounds: list[Round] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """The row of the table; raises UserError if no round was decoded."""
        if not self.rounds:
            raise UserError(f"{self.axis}={self.value}: no round was decoded; raise --tokens")
        own = quartiles(1e3 * sum(r.time.values()) for r in self.rounds)
        tau = mean(r.tokens_advanced for r in self.rounds)
        return {
            "axis": self.axis,
            "value": self.value,
            "rounds": len(self.rounds),
            "nodes": median(r.tree.num_nodes for r in self.rounds),
            "context": median(r.start for r in self.rounds),
            "tau": tau,
            "round_ms": own,
            "stages_ms": {s: median(1e3 * r.time[s] for r in self.rounds) for s in STAGES},
            "ms_per_token": own["value"] / tau,
        }


def points(arguments: Namespace, arms: Arms) -> Iterator[Point]:
    """Every value of every axis; raises UserError or ConfigError for one that cannot be."""
    for axis in arguments.axis or AXES:
        key, _, values = axis.partition("=")
        if not values:
            raise UserError(f"--axis {axis}: write KEY=VALUE,VALUE,...")
        for value in values.split(","):
            if key == "context":
                if not value.isdecimal():
                    raise UserError(f"--axis {axis}: {value!r} is not a number of ids")
                yield Point(key, value, arms)
                continue
            config = configured(arguments, FIXED, last=f"{key}={value}")
            parts = config.verify.name, arms.target.engine
            method = make_method(config.tree, config.budget, arms.method.drafter, *parts)
            method = replace(method, cost=arms.method.cost, overhead=arms.method.overhead)
            yield Point(key, value, replace(arms, config=config, method=method))


def lengthened(arms: Arms, texts: Sequence[str], index: int, least: int) -> list[int]:
    """Ids of the prompt `index` after as many of the other prompts as make at least `least`."""
    text, before = texts[index], index
    while len(ids := arms.encode([{"role": "user", "content": text}])) < least:
        before -= 1
        text = f"{texts[before % len(texts)]}\n\n{text}"
    return ids


def main(words: Sequence[str] | None = None) -> None:
    parser = options(__doc__, limit=2, tokens=32, repeats=1)
    parser.add_argument("--axis", action="append", help="KEY=VALUE,VALUE,...; may be repeated")
    arguments = parser.parse_intermixed_args(words)
    arms, prompts, environment = prepared(configured(arguments, FIXED))
    everything = list(points(arguments, arms))
    texts = [prompt.turns[0] for prompt, _ in prompts]
    for repeat in range(arguments.repeats):
        for index, (prompt, ids) in enumerate(prompts):
            for point in in_turn(everything, index + repeat):
                read = ids
                if point.axis == "context":
                    read = lengthened(arms, texts, index, int(point.value))
                    point.arms.check_length(read)
                sampler = make_sampler(arms.config.decoding, f"{prompt.id}/0")
                point.rounds += point.arms.drafted(read, sampler).rounds
    record = {
        "environment": environment,
        "settings": {
            **{key: getattr(arguments, key) for key in ("limit", "tokens", "repeats")},
            "overrides": [FIXED, *arguments.settings],
            "method": arms.config.method,
        },
        "scaling": [point.record() for point in everything],
    }
    print(f"{'':22} {'round, ms':>10} " + " ".join(f"{stage:>7}" for stage in STAGES), end="")
    print(f" {'nodes':>6} {'context':>8} {'tau':>6} {'ms/token':>9}")
    for row in record["scaling"]:
        stages = " ".join(f"{row['stages_ms'][stage]:7.2f}" for stage in STAGES)
        print(f"{row['axis']} = {row['value']}".ljust(22), end=" ")
        print(f"{row['round_ms']['value']:10.1f} {stages} {row['nodes']:6g}", end=" ")
        print(f"{row['context']:8g} {row['tau']:6.2f} {row['ms_per_token']:9.1f}")
    finish(record, arguments.json)


if __name__ == "__main__":
    sys.exit(command("scaling", main))
