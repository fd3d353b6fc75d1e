"""The warm-up before the first timed prompt: number of threads, row invariance or a tolerance, the
costs of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from dartree_exp.assemble import make_sampler
from dartree_exp.config.schema import Config
from dartree_exp.decode import Method, autoregress, speculate
from dartree_exp.engines.forward import HALF
from dartree_exp.engines.target import Target
from dartree_exp.errors import RunError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.runs.costs import round_costs
from dartree_exp.verify.finite import NonFiniteLogitsError
from dartree_exp.verify.rows import row_difference, self_test
from dartree_exp.verify.stopping import StopRule

TOKENS = 8  # untimed tokens of each arm


@dataclass(frozen=True)
class Machine:
    """The results of the warm-up.

    row_invariant: the self-test passed, so only equal ids pass. tolerance: in logits, how far below
    the maximum a near tie may be; 0 if only equal ids pass. costs: see `costs.round_costs`;
    costs_by_threads: milliseconds of a target forward by rows for every number of threads that was
    tried.
    """

    threads: int
    row_invariant: bool = False
    tolerance: float = 0.0
    costs: dict[str, Any] = field(default_factory=dict)
    costs_by_threads: dict[str, dict[str, float]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The part of environment.json, with units in the keys."""
        tried = (
            {"target_forward_ms_by_threads_and_rows": self.costs_by_threads}
            if self.costs_by_threads
            else {}
        )
        return {**self.costs, **tried}


def warm_up(
    target: Target,
    method: Method,
    config: Config,
    clock: Callable[..., StageClock],
    ids: list[int] | None,
    settle_threads: Callable[[int], int] = lambda measured: measured,
) -> Machine:
    """Choose threads and attention, measure, and decode a few untimed tokens by each arm.

    ids: a prompt that the run can decode; None if there is none, and nothing is measured.
    settle_threads: called without engine.threads; faster number of threads -> number to use.

    Raises RunError for engine.attention=row_invariant if rows depend on their number.
    """
    if ids is None:
        return Machine(torch.get_num_threads())
    rows = sorted({1, 17, method.max_rows})
    tried: dict[str, dict[str, float]] = {}
    if config.engine.threads is None:
        tried = choose_threads(target, ids, rows, clock)
        torch.set_num_threads(settle_threads(torch.get_num_threads()))
    invariant, tolerance, costs = False, 0.0, {}
    rule = StopRule(TOKENS, frozenset(target.eos_ids))
    sampler = make_sampler(config.decoding, "warm-up")
    with suppress(NonFiniteLogitsError):  # raised again in the timed run, which records it
        invariant = settle_rows(target, config, ids, rows[-1])
        if not invariant and target.dtype in HALF:
            tolerance = 2 * row_difference(target, ids, rows[-1])
        autoregress(target, ids, sampler, rule, clock())
        if method.fallback(len(ids), TOKENS) is None:
            speculate(target, method, ids, sampler, rule, clock())
            costs = round_costs(target, method, ids, sampler, clock)
    return Machine(torch.get_num_threads(), invariant, tolerance, costs, tried)


def settle_rows(target: Target, config: Config, ids: Sequence[int], rows: int) -> bool:
    """Whether the target is row-invariant up to `rows` rows, if need be by computing single rows
    among copies; if not, rows may depend on each other from now on.
    """
    if not target.row_invariant:
        return False
    for copied in (False, True):  # first without, because it takes no more time then
        target.forward.copied = copied
        if self_test(target, ids, rows):
            return True
    if config.engine.attention == "row_invariant":
        raise RunError(
            f"engine.attention=row_invariant: on this machine the bits of a row of {target.name} "
            f"in {str(target.dtype).removeprefix('torch.')} depend on the number of rows; use auto "
            "or library"
        )
    target.row_invariant = False
    return False


def choose_threads(
    target: Target, ids: list[int], rows: Sequence[int], clock: Callable[[], StageClock]
) -> dict[str, dict[str, float]]:
    """Set one thread or all, whichever computes one plain step and one full tree faster; returns
    the measured costs of both.

    On a shared machine, threads wait for each other at every product and can be slower than one.
    """
    everything = torch.get_num_threads()
    if everything == 1 or target.device.type != "cpu":
        return {}
    costs = {}
    for threads in (1, everything):
        torch.set_num_threads(threads)
        costs[str(threads)] = forward_costs(target, ids, rows, clock)
    torch.set_num_threads(
        min((1, everything), key=lambda n: costs[str(n)]["1"] + costs[str(n)][str(rows[-1])])
    )
    return costs


def forward_costs(
    target: Target,
    ids: list[int],
    rows: Sequence[int],
    clock: Callable[[], StageClock],
    repeats: int = 3,
) -> dict[str, float]:
    """Median milliseconds of one target forward after `ids`, by number of causal rows."""
    costs = {}
    cache = target.new_cache(len(ids) + max(rows))
    target.prefill(ids, cache)
    for n in rows:
        times = []
        for _ in range(repeats):
            timer = clock()
            with timer.prefill():
                target.prefill(ids[:1] * n, cache)
            timer.start()
            times.append(timer.stop()["prefill"])
            cache.keep(len(ids))
        costs[str(n)] = round(sorted(times)[repeats // 2] * 1e3, 3)
    return costs
