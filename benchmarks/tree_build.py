"""Time to build a draft tree: depth-wise (DARTree pruned) against the heap with sequential correction.

    python benchmarks/tree_build.py [--repeats 30] [--threads 1] [--dtype auto]

Both build from the same scorer with the same Domino head in one process, interleaved round by round, so that a load on
the machine hits both alike. The head has the shape of the shipped drafter's (H 576, G 256, E 128, 16 drafts, 49,152
target tokens of which 9,500 are drafted) and seeded random weights; base logits are peaked about as a trained
backbone's. What a round computes before any tree (candidates, slot projections: `prepare`) is the same for both and
timed apart. Reported: median and quartiles over rounds of wall-clock milliseconds and of this thread's CPU time (which
other processes disturb less), and the ratio of the medians; depth-wise must take at most one third.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import quantiles
from typing import TypeVar

import torch

from dartree_exp.drafters.block import Block
from dartree_exp.drafters.gru import GRUHead
from dartree_exp.models.registry import resolve_dtype
from dartree_exp.trees.builder import Builder
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import FixedBuilder, PrunedBuilder
from dartree_exp.trees.scorer import make_scorer

HIDDEN, GRU, RANK, DRAFTS = 576, 256, 128, 16
VOCAB, DRAFTED = 49_152, 9_500
CANDIDATES, BUDGET, WIDTH, BETA = 64, 64, 12, -0.2
BOUND = 1 / 3
WARM_UP = 3

T = TypeVar("T")


def seeded_head(dtype: torch.dtype) -> tuple[GRUHead, torch.Tensor]:
    """The head, bound as a restricted drafter binds it, and the ids it drafts."""
    vocab_ids = torch.randperm(VOCAB)[:DRAFTED].sort().values
    head = GRUHead(HIDDEN, VOCAB, GRU, RANK, 1).to(dtype).requires_grad_(False)
    return head.bind((torch.randn(VOCAB, HIDDEN) * 0.1).to(dtype), vocab_ids), vocab_ids


def seeded_block(vocab_ids: torch.Tensor, dtype: torch.dtype) -> Block:
    """Base logits whose best token has a probability of about one half, falling off like natural text."""
    ranks = torch.rand(DRAFTS, DRAFTED).argsort(dim=1).argsort(dim=1) + 1.0
    logits = -1.3 * ranks.log() + 0.3 * torch.randn(DRAFTS, DRAFTED)
    return Block(torch.randn(DRAFTS, HIDDEN).to(dtype), logits, vocab_ids)


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What `work` returns, wall-clock and thread CPU milliseconds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    result = work()
    return result, 1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - cpu)


def summary(name: str, samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Print medians and quartiles; return the medians."""
    medians = []
    cells = []
    for column in zip(*samples, strict=True):
        low, middle, high = quantiles(column, n=4)
        medians.append(middle)
        cells.append(f"{middle:7.2f} [{low:6.2f}, {high:6.2f}]")
    print(f"{name:34s} {cells[0]:>26s} {cells[1]:>26s}")
    return medians[0], medians[1]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30, help="rounds, each with its own block")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("auto", "bf16", "fp32"), default="auto", help="as engine.dtype")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dtype = resolve_dtype(args.dtype, torch.device("cpu"))

    children = Children(narrow_by_budget=True)
    builders: dict[str, Builder] = {
        "depth-wise, pruned (default tree)": PrunedBuilder(children, WIDTH, BETA),
        "heap_sequential": HeapBuilder(children),
        "depth-wise, fixed": FixedBuilder(children),
        "chain": ChainBuilder(),
    }
    head, vocab_ids = seeded_head(dtype)
    times: dict[str, list[tuple[float, float]]] = {"prepare (shared)": [], **{name: [] for name in builders}}
    for repeat in range(args.repeats + WARM_UP):
        prepare = partial(make_scorer, "conditional", seeded_block(vocab_ids, dtype), head, int(vocab_ids[repeat]))
        scorer, *sample = timed(partial(prepare, candidates=CANDIDATES, normalise="candidates"))
        row = {"prepare (shared)": (sample[0], sample[1])}
        for name, builder in builders.items():
            _, *sample = timed(partial(builder.build, scorer, int(vocab_ids[repeat]), DRAFTS, BUDGET))
            row[name] = (sample[0], sample[1])
        if repeat >= WARM_UP:
            for name, cell in row.items():
                times[name].append(cell)

    print(f"W {WIDTH}, D {DRAFTS}, K {CANDIDATES}, B {BUDGET}, beta {BETA}; H {HIDDEN}, G {GRU}, E {RANK}, V {VOCAB}")
    print(f"torch {torch.__version__}, {args.threads} thread(s), {dtype}, {platform.machine()} {platform.system()}")
    print(f"{args.repeats} interleaved rounds, milliseconds: median [quartiles]\n")
    print(f"{'':34s} {'wall':>26s} {'thread CPU':>26s}")
    medians = {name: summary(name, samples) for name, samples in times.items()}
    wall, cpu = (medians["depth-wise, pruned (default tree)"][i] / medians["heap_sequential"][i] for i in range(2))
    verdict = "within" if wall <= BOUND else "ABOVE"
    print(f"\ndepth-wise / heap_sequential: wall {wall:.3f}, CPU {cpu:.3f}; {verdict} the bound of {BOUND:.3f}")


if __name__ == "__main__":
    main()
