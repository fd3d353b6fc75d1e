"""Is a policy that chooses lengths ever slower than the best fixed length? Computed from records.

    python benchmarks/lengths.py multirun/libraspec multirun/lengths [--within 0.03]

Each run whose policy reads costs, and whose costs are pinned (`budget.costs`, `budget.overhead`),
is compared with the runs of `budget=fixed` that differ from it in the budget alone, on the prompts
that all of them finished. A round is taken to last the overhead, if it drafted, and the time of the
curve for its rows (the drafts that were verified, and the root); a run's time is the sum over its
rounds, per token that they emitted. No clock is read: equal records give equal numbers, on any
machine. The ratio is the policy's time over that of the best fixed length, with its 95 % interval
over prompts. Exit status: 1 if a ratio exceeds 1 + `--within`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measuring import cell, command

from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.spec import BUDGETS, FIXED
from dartree_exp.errors import UserError
from dartree_exp.metrics.measures import prompt_units, ratio
from dartree_exp.metrics.stats import Estimate, bootstrap
from dartree_exp.records import Run, find_runs
from dartree_exp.report.footer import setting
from dartree_exp.report.labels import compared
from dartree_exp.report.tables import method_of

WITHIN = 0.03
_BUDGET = ("budget.", "tree.budget")
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Verdict:
    """A policy against the best fixed length. Times: modelled milliseconds per token."""

    name: str
    costs: list[list[float]]
    prompts: int
    time: float
    nodes: float  # drafts verified per round
    best: int  # `tree.budget` of the best fixed length
    best_time: float
    plain: float  # of plain decoding
    ratio: Estimate


def parts(run: Run) -> tuple[tuple[str, str], ...]:
    """The settings of a run besides its budget."""
    found = compared(run.config)
    return tuple(sorted((k, v) for k, v in found.items() if not k.startswith(_BUDGET)))


def pinned(run: Run) -> bool:
    """Whether the policy reads costs, all of which the configuration gives."""
    policy = BUDGETS.get(str(setting(run.config, "budget.name")))
    costs, overhead = (setting(run.config, f"budget.{key}") for key in ("costs", "overhead"))
    return policy is not None and "costs" in policy.reads and bool(costs) and overhead is not None


def finished(run: Run) -> set[Key]:
    """The answers that were decoded by the method to their end."""
    return {s.key for s in run.samples if s.error is None and s.fallback is None and s.rounds}


def modelled(run: Run, keys: set[Key], curve: CostCurve, overhead: float) -> np.ndarray:
    """float64 [P, 2]: seconds and tokens of each distinct prompt, in the order of `units`."""
    units = prompt_units(run.samples)
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2))
    for round_ in run.rounds:
        if round_.sample_key in keys:
            drafted = overhead if round_.supertree_size else 0.0  # a resting policy does not draft
            seconds = drafted + curve(1 + round_.tree_size)
            sums[units[round_.id]] += (seconds, round_.emitted)
    return np.stack([sums[unit] for unit in sorted(sums)])


def judge(run: Run, lengths: Sequence[Run]) -> Verdict:
    """A run with pinned costs against runs of fixed lengths. Raises UserError without a common
    prompt.
    """
    keys = finished(run).intersection(*map(finished, lengths))
    if not keys:
        raise UserError(f"{run.path}: no prompt was finished by it and by every fixed length")
    costs = setting(run.config, "budget.costs")
    curve = CostCurve({int(rows): ms / 1e3 for rows, ms in costs})
    overhead = setting(run.config, "budget.overhead") / 1e3
    own, *others = (modelled(one, keys, curve, overhead) for one in (run, *lengths))
    times = [float(t.sum(0)[0] / t.sum(0)[1]) for t in (own, *others)]
    best = int(np.argmin(times[1:]))
    both = np.concatenate([own, others[best]], axis=1)

    def quotient(sums: np.ndarray) -> np.ndarray:
        return ratio(ratio(sums[..., 0], sums[..., 1]), ratio(sums[..., 2], sums[..., 3]))

    nodes = [r.tree_size for r in run.rounds if r.sample_key in keys]
    return Verdict(
        method_of(run),
        costs,
        len(own),
        times[0] * 1e3,
        float(np.mean(nodes)),
        int(setting(lengths[best].config, "tree.budget")),
        times[1 + best] * 1e3,
        curve(1) * 1e3,
        bootstrap(both, quotient),
    )


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """Of every run with pinned costs that has fixed lengths to be compared with. Raises UserError
    if there is none.
    """
    fixed: dict[tuple[tuple[str, str], ...], list[Run]] = defaultdict(list)
    for run in runs:
        if setting(run.config, "budget.name") == FIXED:
            fixed[parts(run)].append(run)
    found = [judge(run, fixed[parts(run)]) for run in runs if pinned(run) and parts(run) in fixed]
    if not found:
        raise UserError(
            "no run with pinned costs (budget.costs and budget.overhead, and a policy that reads "
            "them) has beside it a run that differs in the budget alone and has budget=fixed"
        )
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a policy is slower than it may be. Raises UserError."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders or sweep folders")
    parser.add_argument("--within", type=float, default=WITHIN, help=f"default {WITHIN}")
    arguments = parser.parse_args(words)
    found = verdicts([run for folder in arguments.folders for run in find_runs(folder)])
    print(
        "| policy | costs [rows, ms] | prompts | verified per round | ms per token | best fixed | "
        "its ms per token | plain | ratio | |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    slower = 0
    for one in found:
        assert one.ratio.value is not None
        bad = one.ratio.value > 1 + arguments.within
        slower += bad
        print(
            f"| {one.name} | {one.costs} | {one.prompts} | {one.nodes:.1f} | {one.time:.2f} | "
            f"{one.best} | {one.best_time:.2f} | {one.plain:.2f} | "
            f"{cell(one.ratio.to_dict(), 3)} | {'SLOWER' if bad else 'ok'} |"
        )
    print(f"\n{len(found) - slower} of {len(found)} within {arguments.within:.0%}")
    return int(slower > 0)


if __name__ == "__main__":
    status = [0]
    failed = command("lengths", lambda: status.__setitem__(0, main()))
    sys.exit(failed or status[0])
