"""A sweep's comparison as a W&B report: the table of its summaries, and panels over its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dartree_exp.errors import UserError

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report

_WIDTH, _HEIGHT = 12, 8  # half of the grid's 24 columns
_NONE = "–"


def comparison_report(
    sweep: str,
    summaries: Mapping[str, Mapping[str, Any]],
    project: str,
    entity: str,
    note: str = "",
) -> Report:
    """The report, not saved yet; its panels read the runs that `tracker=wandb` sent, group `sweep`.

    Args:
        sweep: name of the sweep's folder, which is the group of its W&B runs.
        summaries: summary.json of each run by its name in tables, in the order of the table.
        project, entity: of the runs and the report.
        note: a paragraph under the table, such as hardware and settings.

    Raises UserError if the extra `report` is not installed.
    """
    wr, expr = _library()
    runs = wr.Runset(
        entity=entity, project=project, name=sweep, filters=expr.And(expr.Metric("Group") == sweep)
    )
    so_far = "prompt/tau_macro_so_far"
    panels = [
        wr.BarPlot(title="tau (macro)", metrics=["tau_macro"]),
        wr.BarPlot(title="speedup over plain decoding", metrics=["speedup"]),
        wr.LinePlot(title="tau so far, by prompt", x="prompt/index", y=[so_far]),
        wr.ScatterPlot(
            title="speedup against tau",
            x=wr.SummaryMetric("tau_macro"),
            y=wr.SummaryMetric("speedup"),
        ),
        wr.BarPlot(title="draft, ms per round", metrics=["stage_ms_per_round/draft"]),
        wr.BarPlot(title="verify, ms per round", metrics=["stage_ms_per_round/verify"]),
        wr.MediaBrowser(
            title="acceptance lengths and samples", media_keys=["acceptance_length", "samples"]
        ),
    ]
    for index, panel in enumerate(panels):
        panel.layout = wr.Layout(x=index % 2 * _WIDTH, y=index // 2 * _HEIGHT, w=_WIDTH, h=_HEIGHT)
    return wr.Report(
        project=project,
        entity=entity,
        title=f"dartree_exp: {sweep}",
        description="tau and speedup with 95 % intervals over prompts, from the runs' summaries",
        blocks=[
            wr.MarkdownBlock("\n".join(_table(summaries))),
            *([wr.P(note)] if note else []),
            wr.PanelGrid(runsets=[runs], panels=panels),
        ],
        width="fluid",
    )


def save_comparison_report(
    sweep: str,
    summaries: Mapping[str, Mapping[str, Any]],
    project: str,
    entity: str,
    note: str = "",
) -> str:
    """Build the report and send it to W&B. Returns its address. Raises UserError if it cannot be
    saved.
    """
    report = comparison_report(sweep, summaries, project, entity, note)
    try:
        return str(report.save().url)
    except Exception as error:  # the library's errors have no common base
        raise UserError(f"the W&B report was not saved: {' '.join(str(error).split())}") from error


def _library() -> tuple[Any, Any]:
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.reports.v2 as reports
    except ImportError as error:
        raise UserError(
            "a W&B report needs the extra: pip install 'dartree_exp[report]'"
        ) from error
    return reports, expr


def _table(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["| run | n | tau (macro) | speedup | lossless |", "|---|---|---|---|---|"]
    for name, summary in summaries.items():
        verdicts = ", ".join(
            f"{n} {verdict.replace('_', ' ')}" for verdict, n in summary["verdicts"].items() if n
        )
        numbers = _estimate(summary["tau_macro"]), _estimate(summary["speedup"], "×")
        lines.append(f"| {' | '.join([name, str(summary['n']), *numbers, verdicts or _NONE])} |")
    return lines


def _estimate(estimate: Mapping[str, float | None], unit: str = "") -> str:
    if estimate["value"] is None:
        return _NONE
    bounds = "" if estimate["low"] is None else f" [{estimate['low']:.2f}, {estimate['high']:.2f}]"
    return f"{estimate['value']:.2f}{unit}{bounds}"
