"""The table of one run: by category and overall, from its folder alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dartree_exp.metrics.clock import STAGES
from dartree_exp.metrics.summary import summarise
from dartree_exp.records import Run
from dartree_exp.records.files import write_atomic
from dartree_exp.report import caveats, footer, verdicts
from dartree_exp.report.table import NONE, Cell, Table, interval, label

HEADERS = (
    "category",
    "n",
    "tau macro",
    "tau micro",
    "speedup",
    "/\n".join("/".join(STAGES[i : i + 2]) for i in (0, 2, 4)) + "\n% of time",
    "lossless",
    "also",
)
_ENDS = {"value": "", "low": "_low", "high": "_high"}


def run_tables(
    folder: str | Path | Run,
    console: Console | None = None,
    write: Callable[[Path, str], object] = write_atomic,
) -> Table:
    """Print the table of a run folder if a console is given, write its table.md and table.csv, and
    return it.

    Raises RecordError if the folder is not a run folder, is damaged, or cannot be written; the
    table is printed first.
    """
    run = folder if isinstance(folder, Run) else Run(Path(folder))
    table = run_table(run)
    if console is not None:
        table.print(console)
    write(run.path / "table.md", table.markdown())
    write(run.path / "table.csv", table.csv())
    return table


def run_table(run: Run) -> Table:
    """The table of a finished or unfinished run."""
    summary = summarise(run.samples, method_of(run))
    categories = summary["by_category"]
    rows = (
        [_row(run, category, numbers) for category, numbers in categories.items()]
        if len(categories) > 1
        else []
    )
    rows.append(_row(run, "all", summary))
    speeds = [summary[key]["value"] for key in ("tokens_per_second", "ar_tokens_per_second")]
    notes = [
        *caveats.caveats(run),
        *caveats.failures(run),
        footer.method(run.config),
        *footer.stamp([run]),
        *(
            []
            if None in speeds
            else [
                f"{speeds[0]:.1f} tokens/s against {speeds[1]:.1f} of lean AR "
                f"{footer.beside(run.config)}"
            ]
        ),
        *footer.definitions("tau_macro", "tau_micro", "speedup"),
    ]
    return Table(
        summary["method"], HEADERS, rows, notes, frozenset({len(rows) - 2}), *verdicts.lead([run])
    )


def method_of(run: Run) -> str:
    """The recorded name of the method."""
    return (
        run.samples[0].method
        if run.samples
        else str(footer.setting(run.config, "method") or run.path.name)
    )


def also(numbers: Mapping[str, Any]) -> Cell:
    """Counts that qualify a row: copies of other prompts, failures, fallbacks, loops, answers that
    ended at the cap.
    """
    names = {
        "copies": "copies",
        "failed": "failed",
        "fallbacks": "by AR",
        "degenerate": "looping",
        "capped": "capped",
    }
    shown = [f"{numbers[key]} {name}" for key, name in names.items() if numbers[key]]
    return Cell("\n".join(shown) or NONE, {key: numbers[key] for key in names})


def _stages(stages: Mapping[str, Mapping[str, float | None]]) -> Cell:
    shares = {stage: stages[stage]["value"] for stage in STAGES}
    values = {
        f"share_{stage}{end}": stages[stage][key] for stage in STAGES for key, end in _ENDS.items()
    }
    if None in shares.values():
        return Cell(NONE, values)
    return Cell(
        "/".join(f"{100 * share:.0f}" for share in shares.values() if share is not None), values
    )


def _row(run: Run, category: str, numbers: Mapping[str, Any]) -> list[Cell]:
    samples = [s for s in run.samples if category in ("all", s.category)]
    speedup = interval("speedup", numbers["speedup"], "×")
    extra = {
        f"{name}{end}": numbers[name][key]
        for name in (
            "speedup_macro",
            "drafts_per_round",
            "emitted_per_round",
            "verified_per_round",
            "tokens_per_second",
            "ar_tokens_per_second",
        )
        for key, end in _ENDS.items()
    }
    return [
        label("category", category),
        Cell(str(numbers["n"]), {"n": numbers["n"], "turns": numbers["turns"]}),
        interval("tau_macro", numbers["tau_macro"]),
        interval("tau_micro", numbers["tau_micro"]),
        caveats.timed(run, replace(speedup, values={**speedup.values, **extra})),
        _stages(numbers["stages"]),
        verdicts.cell(samples, verdicts.proof_of(run) if category == "all" else None),
        also(numbers),
    ]
