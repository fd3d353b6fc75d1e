"""The claims of a table: which row is the best, which differences are separable, whether times can
be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dartree_exp.metrics.stats import LEAST_PAIRS, LEVEL, best_of, estimate
from dartree_exp.records import Run, SampleRecord
from dartree_exp.report import footer
from dartree_exp.report.caveats import is_result, load_problem, shared_baseline, timed
from dartree_exp.report.table import Cell, interval, lines
from dartree_exp.report.tables import method_of

TIMES = ("speedup", "speedup_macro", "ms_per_round", "tokens_per_second", "ar_tokens_per_second")
SEPARABLE = (
    f"the {LEVEL:.0%} interval of the paired difference excludes zero, over {LEAST_PAIRS} "
    "distinct prompts or more"
)
BEST = (
    f"bold: the best row, if separable from every other row ({SEPARABLE}); never plain decoding "
    "(ar), nor a run that is unfinished, incomplete or has wrong outputs"
)


def against_times(runs: Sequence[Run]) -> list[str]:
    """Why the times of these runs cannot be compared; empty if they can."""
    apart = "plain decoding was not timed beside each method (baseline=shared)"
    return [apart] * any(shared_baseline(run) for run in runs) + _apart(runs) + _unlike(runs)


def _apart(runs: Sequence[Run]) -> list[str]:
    processes = {run.environment.get("process") for run in runs}
    return (
        []
        if len(processes) == 1 and None not in processes
        else ["not all runs were timed in one process"]
    )


def _unlike(runs: Sequence[Run]) -> list[str]:
    reasons = []
    if len({footer.machine(run.environment) for run in runs}) > 1:
        reasons.append("not all runs are from the same machine, threads or dtype")
    if any(run.environment.get("earlier") for run in runs):
        reasons.append("a run was resumed on another machine or with other versions")
    problems = dict.fromkeys(load_problem(run.environment) for run in runs)
    return reasons + [problem for problem in problems if problem]


def comparable(runs: Sequence[Run], metric: str) -> bool:
    """Whether differences of the metric between these runs may be called separable."""
    return metric not in TIMES or not against_times(runs)


def notes(runs: Sequence[Run]) -> list[str]:
    """The meaning of bold, and why no time is bold if none can be."""
    found = [BEST]
    if reasons := against_times(runs):
        found.append(f"no speed is bold or separable: {'; '.join(reasons)}")
    if any(shared_baseline(run) for run in runs) and not _unlike(runs):
        found.append(
            "rank: by milliseconds per round, independent of plain decoding; lower is faster"
        )
    return found


def mark_best(
    rows: Sequence[list[Cell]],
    column: int,
    runs: Sequence[Run],
    samples: Sequence[Sequence[SampleRecord]],
    metric: str,
) -> None:
    """Make the cell of the best row bold, if there is one.

    samples: the samples of each row.
    """
    best = best_of(samples, metric, comparable=comparable(runs, metric))
    if best is not None and may_be_best(runs[best]):
        rows[best][column] = replace(rows[best][column], best=True)


def may_be_best(run: Run) -> bool:
    """False for plain decoding, which is the baseline, and for wrong or unfinished runs."""
    return method_of(run) != "ar" and is_result(run)


def round_times(runs: Sequence[Run], samples: Sequence[Sequence[SampleRecord]]) -> list[Cell]:
    """Milliseconds per round of each run; with ranks if plain decoding was not timed beside each
    and all are from one machine.
    """
    times = [estimate(chosen, "ms_per_round") for chosen in samples]
    cells = [
        timed(run, interval("ms_per_round", time.to_dict()))
        for run, time in zip(runs, times, strict=True)
    ]
    values = {
        i: time.value
        for i, time in enumerate(times)
        if time.value is not None and may_be_best(runs[i])
    }
    shared = any(shared_baseline(run) for run in runs)
    if not shared or _unlike(runs) or len(values) < 2:
        return cells
    for rank, index in enumerate(sorted(values, key=values.__getitem__), start=1):
        shown = lines(cells[index], f"rank {rank}")
        cells[index] = replace(shown, values={**shown.values, "ms_per_round_rank": rank})
    return cells
