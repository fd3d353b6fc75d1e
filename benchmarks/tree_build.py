"""Time to build a draft tree by each method from the same recorded drafts.

    python benchmarks/tree_build.py [--dtypes bf16,fp32] [--prompts 3] [--tokens 24]
        [--repeats 10] [--threads 1]

For each dtype the real target and the shipped drafter decode a few `mini` prompts, and every
round's block is kept. Then each method builds its tree from each block, in turn and in alternating
order, so load on the machine affects all methods alike. `prepare` (candidates, slot projections)
and `build` are timed separately: median and quartiles over blocks and repeats, of wall-clock
milliseconds and of this thread's CPU time.

Untimed passes count how often a depth was scored per build and level (1 for trees that are grown
level by level; heaps score single nodes, or every depth at once), and how many of the selections
that look for ties sorted a whole row.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from statistics import median, quantiles
from typing import Any, TypeVar
from unittest.mock import patch

import torch

from dartree_exp.assemble import load_parts, make_method, make_rule, make_sampler
from dartree_exp.config import compose
from dartree_exp.config.schema import Config
from dartree_exp.decode import Method, speculate
from dartree_exp.interfaces import Block, Commit, DraftTree, Draws, Limits, Scorer
from dartree_exp.kernels import candidate_select
from dartree_exp.metrics.clock import StageClock
from dartree_exp.prompts import load_prompts

METHODS = (
    "dartree_pruned",
    "dartree_fixed",
    "heap_sequential",
    "dominotree",
    "dominotree_frontier",
    "chain_ddtree",
    "ddtree",
    "domino",
)
RATIOS = (("dartree_pruned", "heap_sequential"), ("dartree_fixed", "heap_sequential"))
BUDGET = 64  # for every method

T = TypeVar("T")
Draft = tuple[Block, Commit, Draws]


def record(config: Config) -> tuple[Method, list[Draft]]:
    """The default method, and the drafts of all its rounds."""
    target, method = load_parts(config)
    drafts: list[Draft] = []

    def scoring(block: Block, commit: Commit, draws: Draws) -> Scorer:
        drafts.append((block, commit, draws))
        return method.scoring(block, commit, draws)

    rule = make_rule(config.decoding, target)
    for prompt in load_prompts(config.benchmark):
        ids = target.tokenizer.encode_chat([{"role": "user", "content": prompt.turns[0]}], False)
        recorder = replace(method, scoring=scoring)
        speculate(
            target, recorder, ids, make_sampler(config.decoding, prompt.id), rule, StageClock()
        )
    return method, drafts


def build(method: Method, scorer: Scorer) -> DraftTree:
    return method.builder.build(scorer, Limits(method.depth, BUDGET))


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """The result of `work`, and its wall-clock and thread CPU milliseconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    result = work()
    return result, 1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - cpu)


def measure(
    methods: dict[str, Method], drafts: list[Draft], repeats: int
) -> dict[str, list[tuple[float, ...]]]:
    """For each method, block and repeat: wall and CPU of `prepare`, then of `build`. The first pass
    is a warm-up.
    """
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in methods}
    for repeat in range(repeats + 1):
        for draft in drafts:
            for name in list(methods)[:: 1 if repeat % 2 else -1]:
                method = methods[name]
                scorer, *prepare = timed(partial(method.scoring, *draft))
                _, *built = timed(partial(build, method, scorer))
                if repeat:
                    times[name].append((*prepare, *built))
    return times


def count(method: Method, drafts: list[Draft]) -> Counter[str]:
    """Levels built, calls that scored a depth, selections and whole sorts, over one pass."""
    seen: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., T], *args: Any) -> T:
        seen[name] += 1
        return function(*args)

    tying, sorting = candidate_select._topk_or_sort, candidate_select._sorted_topk

    def selected(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        seen["selections"] += 1
        with patch.object(candidate_select, "_sorted_topk", partial(counted, "sorted", sorting)):
            return tying(values, k)

    for draft in drafts:
        scorer: Any = method.scoring(*draft)
        for name in ("score", "best", "top"):
            setattr(scorer, name, partial(counted, "scored", getattr(scorer, name)))
        with patch.object(candidate_select, "_topk_or_sort", selected):
            tree = build(method, scorer)
            seen["levels"] += int((tree.supertree or tree).depths.max())
    return seen


def quartiles(values: Iterable[float]) -> str:
    low, middle, high = quantiles(list(values), n=4)
    return f"{middle:8.2f} [{low:6.2f}, {high:6.2f}]"


def wide_ties(drafts: list[Draft], k: int) -> int:
    """The number of blocks whose selection of `k` candidates sorts whole rows."""
    with patch.object(
        candidate_select, "_sorted_topk", side_effect=candidate_select._sorted_topk
    ) as full:
        for block, *_ in drafts:
            candidate_select.stable_topk(block.logits, k)
    return full.call_count


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", default="bf16,fp32", help="as engine.dtype, comma-separated")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument(
        "--tokens", type=int, default=24, help="decoded per prompt to record blocks"
    )
    parser.add_argument("--repeats", type=int, default=10, help="timed passes over the blocks")
    parser.add_argument(
        "--threads", type=int, default=1, help="while building; recording uses torch's choice"
    )
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {platform.machine()} {platform.system()}, {os.cpu_count()} "
        "cores",
        end=", ",
    )
    print(
        f"load average {os.getloadavg()[0]:.1f} at the start; {args.threads} thread(s); "
        f"milliseconds, B = {BUDGET}"
    )
    cores = torch.get_num_threads()
    for dtype in args.dtypes.split(","):
        torch.set_num_threads(cores)
        common = [
            f"engine.dtype={dtype}",
            f"tree.budget={BUDGET}",
            f"decoding.max_new_tokens={args.tokens}",
        ]
        recorded, drafts = record(compose([*common, f"benchmark.limit={args.prompts}"]))
        torch.set_num_threads(args.threads)
        methods = {}
        for name in METHODS:
            config = compose([*common, f"method={name}"])
            methods[name] = make_method(config.tree, config.budget, recorded.drafter)
        times = measure(methods, drafts, args.repeats)
        print(
            f"\n{dtype}: {len(drafts)} blocks of {args.prompts} prompts, "
            f"{tuple(drafts[0][0].logits.shape)} logits;",
            end=" ",
        )
        print(f"candidates of {wide_ties(drafts, 64)} blocks need a whole sort (K = 64)")
        print(
            f"{'':20s} {'prepare, wall':>25s} {'build, wall':>25s} {'build, CPU':>25s}  "
            "scored/level  sorted/selections"
        )
        for name, rows in times.items():
            prepare, _, wall, cpu = zip(*rows, strict=True)
            seen = count(methods[name], drafts)
            print(f"{name:20s} {quartiles(prepare)} {quartiles(wall)} {quartiles(cpu)}", end="  ")
            print(f"{seen['scored'] / seen['levels']:12.2f}  {seen['sorted']}/{seen['selections']}")
        for over, under in RATIOS:
            ratios = [
                median(row[i] for row in times[over]) / median(row[i] for row in times[under])
                for i in (2, 3)
            ]
            print(f"{over} / {under}: wall {ratios[0]:.3f}, CPU {ratios[1]:.3f}")


if __name__ == "__main__":
    main()
