"""What a round costs on this machine: rounds of the method itself, with trees of several sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from dartree_exp.assemble import pinned_costs
from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.config.method_schema import BudgetConfig
from dartree_exp.decode import Method, Round, speculate
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import Limits, Overhead, RoundView, Scorer
from dartree_exp.metrics.clock import StageClock
from dartree_exp.records.environment import BESIDES, VERIFY
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

REPEATS = 5  # rounds of each size
_REST = ("build", "mask", "commit", "other")


class _EnoughError(Exception):
    """All rounds were measured."""


class Cycle(FixedBudget):
    """Trees of each size in turn."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def plan(self, view: RoundView, scorer: Scorer) -> Limits:
        return Limits(view.limits.depth, self.sizes[view.index % len(self.sizes)])


def sizes(most: int) -> list[int]:
    """Numbers of nodes to measure: 0, 1, 4, 8, 16, ... and the most that a round can have."""
    found, size = {0, min(1, most), most}, 4
    while size < most:
        found.add(size)
        size *= 2
    return sorted(found)


def round_costs(
    target: Target,
    method: Method,
    ids: Sequence[int],
    sampler: Sampler,
    clock: Callable[..., StageClock],
    repeats: int = REPEATS,
) -> dict[str, Any]:
    """Median milliseconds, as they are recorded: {VERIFY: of the verify stage by rows, BESIDES: of
    the other stages}; {} if the prompt leaves no room for a round.

    Run after an untimed pass. The first round is not used, since it drafts after the whole prompt.
    """
    spare = method.depth + method.drafter.block_size
    room = min(target.max_positions, method.drafter.max_positions) - len(ids) - spare
    probes = getattr(method.drafter, "max_probes", 0)
    cycle = Cycle(sizes(method.max_rows - 1 - probes))
    rounds: list[Round] = []

    def note(round_: Round) -> None:
        rounds.append(round_)
        if len(rounds) > repeats * len(cycle.sizes):
            raise _EnoughError

    if room > 1:
        with suppress(_EnoughError):
            watched = replace(method, policy=cycle)
            timer = clock(profile=True)
            speculate(target, watched, ids, sampler, StopRule(room), timer, note)
    verify: dict[int, list[float]] = defaultdict(list)
    for round_ in rounds[1:]:
        verify[round_.tree.num_nodes + 1].append(round_.time["verify"])
    if not verify:
        return {}
    stages = {
        stage: _ms([round_.time[stage] for round_ in rounds[1:]]) for stage in ("draft", *_REST)
    }
    return {VERIFY: {str(n): _ms(verify[n]) for n in sorted(verify)}, BESIDES: stages}


def _ms(seconds: Sequence[float]) -> float:
    return round(median(seconds) * 1e3, 3)


def with_costs(method: Method, record: Mapping[str, Any], budget: BudgetConfig) -> Method:
    """The method with recorded costs, except those that the configuration gives."""
    measured: dict[str, Any] = {}
    if record.get(VERIFY):
        curve = {int(rows): ms / 1e3 for rows, ms in record[VERIFY].items()}
        measured["cost"] = CostCurve(curve)
    if record.get(BESIDES):
        stages = {name: ms / 1e3 for name, ms in record[BESIDES].items()}
        rest = sum(stages.values()) - stages.get("draft", 0.0)
        measured["overhead"] = Overhead(stages.get("draft", 0.0), rest)
    return replace(method, **(measured | pinned_costs(budget)))
