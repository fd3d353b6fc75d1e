"""Compares the speed of this checkout and another one: builds and rounds, in pairs.

    python benchmarks/against.py --before FOLDER [--methods dartree_pruned,domino] [--tokens 32]
        [--repeats 20] [--prompts 3] [--dtype bf16]

FOLDER: a checkout of the other commit with its own environment in `.venv` (README). Both decode the
same prompts of `mini` in their own processes, on one thread, in turns. Times are CPU times of the
process, which other work on the machine hardly changes. A ratio is this checkout's time over the
other's, with the 95 % bootstrap interval over the pairs. The ids must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
COUNTED = ("draft", "build", "mask", "verify", "commit", "other")
NOT_THE_TARGET = tuple(stage for stage in COUNTED if stage != "verify")


def work(settings: dict[str, Any]) -> None:
    """One side: for each line, a method, decode every prompt and write CPU seconds by stage."""
    import time

    from dartree_exp.assemble import load_parts, make_rule, make_sampler
    from dartree_exp.config import compose
    from dartree_exp.decode import speculate
    from dartree_exp.metrics.clock import StageClock
    from dartree_exp.prompts import load_prompts

    methods: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in methods:
            fixed = ["engine.threads=1", f"engine.dtype={settings['dtype']}"]
            config = compose(
                [f"method={name}", f"decoding.max_new_tokens={settings['tokens']}", *fixed]
            )
            methods[name] = (config, *load_parts(config))
        config, target, method = methods[name]
        rule, answers = make_rule(config.decoding, target), []
        spent, rounds = dict.fromkeys(COUNTED, 0.0), 0
        for prompt in load_prompts(config.benchmark)[: settings["prompts"]]:
            ids = target.tokenizer.encode_chat(
                [{"role": "user", "content": prompt.turns[0]}], False
            )
            sampler = make_sampler(config.decoding, prompt.id)
            clock = StageClock(now=time.process_time_ns)
            decoded = speculate(target, method, ids, sampler, rule, clock)
            answers.append(decoded.ids)
            rounds += len(decoded.rounds)
            for stage in COUNTED:
                spent[stage] += decoded.time[stage]
        print(json.dumps({"ids": answers, "rounds": rounds, "time": spent}), flush=True)


def start(folder: Path, settings: dict[str, Any]) -> subprocess.Popen[str]:
    """A process that runs this file with the package of the checkout `folder`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    python = folder / ".venv" / "bin" / "python"
    command = [str(python), __file__, "--work", json.dumps(settings)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(side: subprocess.Popen[str], method: str) -> dict[str, Any]:
    assert side.stdin is not None and side.stdout is not None
    side.stdin.write(f"{method}\n")
    side.stdin.flush()
    answer: dict[str, Any] = json.loads(side.stdout.readline())
    return answer


def interval(before: np.ndarray, after: np.ndarray) -> str:
    """The ratio of sums, with its interval over pairs."""
    draws = np.random.default_rng(0).integers(len(before), size=(2000, len(before)))
    low, high = np.quantile(after[draws].sum(1) / before[draws].sum(1), [0.025, 0.975])
    return f"{after.sum() / before.sum():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--methods", default="dartree_pruned,dartree_fixed,domino,ddtree,pctree")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens of each answer")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20, help="pairs of each method")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(json.loads(arguments.work))
        return
    if arguments.before is None:
        parser.error("--before: name a checkout of the other commit")
    settings = {key: getattr(arguments, key) for key in ("tokens", "prompts", "dtype")}
    sides = [start(folder.resolve(), settings) for folder in (arguments.before, HERE)]
    print(
        f"{'method':20} {'build':>22} {'all but verify':>22} {'round':>22}   ms per round, before"
    )
    for method in arguments.methods.split(","):
        warm = [ask(side, method) for side in sides]
        if warm[0]["ids"] != warm[1]["ids"]:
            print(f"{method:20} the ids differ: not compared")
            continue
        times: list[list[dict[str, float]]] = [[], []]
        for repeat in range(arguments.repeats):
            for side in (0, 1) if repeat % 2 == 0 else (1, 0):
                times[side].append(ask(sides[side], method)["time"])
        cells = []
        for stages in (("build",), NOT_THE_TARGET, COUNTED):
            before, after = (np.array([sum(t[s] for s in stages) for t in own]) for own in times)
            cells.append(interval(before, after))
        cost = sum(sum(t.values()) for t in times[0]) / arguments.repeats / warm[0]["rounds"]
        print(f"{method:20} " + " ".join(f"{cell:>22}" for cell in cells) + f"   {cost * 1e3:.1f}")
    for side in sides:
        side.terminate()


if __name__ == "__main__":
    main()
