"""`python -m dartree_exp.report <folders>`: tables, plots and pages of finished or running runs, from their files alone."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from dartree_exp.errors import UserError
from dartree_exp.records import RecordError, Run, find_runs
from dartree_exp.records.files import write_atomic
from dartree_exp.records.reader import is_run_folder
from dartree_exp.report.compare import comparison, in_order
from dartree_exp.report.footer import stamp
from dartree_exp.report.labels import name_runs
from dartree_exp.report.table import Table
from dartree_exp.report.tables import run_tables
from dartree_exp.report.verdicts import lead


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 where a folder could not be reported (the others are) or another request failed."""
    options = _parser().parse_args(arguments)
    console = Console()
    if options.tree is not None:
        return _show_tree(options.folders, options.tree, console)

    failed = False
    loose: list[Run] = []
    found: list[Run] = []
    tables: list[Table] = []
    for folder in options.folders:
        try:
            runs, bad = _readable(folder)
            failed |= bad
            found += runs
            own = [run_tables(run, console if len(runs) == 1 else None) for run in runs]
            if options.latex:
                for run, table in zip(runs, own, strict=True):
                    _write_latex(run.path / "table.tex", [table])
            if is_run_folder(folder):
                loose += runs
            if len(runs) == 1 and len(options.folders) == 1:
                tables += own
            if len(runs) > 1:
                compared = comparison(runs, console, options.baseline, output=folder)
                if options.latex:
                    _write_latex(folder / "comparison.tex", compared)
                tables += compared
        except UserError as error:
            failed = _complain(error)
    try:
        if len(loose) > 1:
            tables += comparison(loose, console, options.baseline)
        for key in options.swap:
            tables += _swapped(found, key, console, options)
        if options.published:
            tables += _published(found, console, options)
        if options.plots is not None:
            _write_plots(found, options.plots)
        if options.html is not None:
            _write_page(found, tables, options.html, arguments)
        if options.wandb_report is not None:
            _save_wandb_report(found, options.wandb_report)
    except UserError as error:
        failed = _complain(error)
    return 2 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.report",
        description="Rebuild what can be said about run folders: table.md and table.csv in each, "
        "comparison.md and comparison.csv in a sweep folder.",
    )
    parser.add_argument("folders", nargs="+", type=Path, help="run folders or sweep folders")
    parser.add_argument("--baseline", help="run that differences are taken from: its name, method or folder name")
    parser.add_argument("--html", type=Path, metavar="FILE", help="one page with tables, plots and the tree viewer")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="every plot as an SVG file")
    parser.add_argument("--latex", action="store_true", help="the tables as .tex files as well, beside the others")
    parser.add_argument(
        "--swap",
        metavar="KEY",
        action="append",
        default=[],
        help="differences between runs that differ in this setting or group alone, e.g. drafter; may be repeated",
    )
    parser.add_argument("--published", action="store_true", help="the papers' numbers beside ours, marked as theirs")
    parser.add_argument(
        "--wandb-report", metavar="ENTITY/PROJECT", help="a report on W&B over the runs that tracker=wandb sent there"
    )
    parser.add_argument(
        "--tree", metavar="SAMPLE:ROUND", help="draw the draft tree of this round of one run, and do nothing else"
    )
    return parser


def _readable(folder: Path) -> tuple[list[Run], bool]:
    """The runs at `folder` whose records can be read, and whether some could not (they are named)."""
    good, bad = [], False
    for run in find_runs(folder):
        try:
            _ = run.status, run.config, run.environment, run.samples
            good.append(run)
        except UserError as error:
            bad = _complain(error)
    return good, bad


def _show_tree(folders: Sequence[Path], place: str, console: Console) -> int:
    from dartree_exp.report.treeview import find_tree, print_tree

    try:
        runs = [run for folder in folders for run in find_runs(folder)]
        if len(runs) != 1:
            raise RecordError(f"--tree draws a round of one run; these are {len(runs)}: name one run folder")
        print_tree(console, *find_tree(runs[0], place))
    except UserError as error:
        _complain(error)
        return 2
    return 0


def _swapped(runs: Sequence[Run], key: str, console: Console, options: argparse.Namespace) -> list[Table]:
    from dartree_exp.report.swap import swap_tables

    tables = swap_tables(runs, key)
    _show(tables, f"swap_{key}", console, options)
    return tables


def _published(runs: Sequence[Run], console: Console, options: argparse.Namespace) -> list[Table]:
    from dartree_exp.report.published import published_tables

    tables = published_tables(in_order(runs))
    _show(tables, "published", console, options)
    if not tables:
        print("published: no paper in the data file has these methods at this temperature", file=sys.stderr)
    return tables


def _show(tables: Sequence[Table], name: str, console: Console, options: argparse.Namespace) -> None:
    """Print tables on request and, where one folder was named, write them into it."""
    if tables and len(options.folders) == 1:
        write_atomic(options.folders[0] / f"{name}.md", "\n".join(table.markdown() for table in tables))
        if options.latex:
            _write_latex(options.folders[0] / f"{name}.tex", tables)
    for table in tables:
        table.print(console)


def _write_latex(path: Path, tables: Sequence[Table]) -> None:
    from dartree_exp.report.latex import latex

    write_atomic(path, latex(tables))


def _write_plots(runs: Sequence[Run], folder: Path) -> None:
    from dartree_exp.report.figures import plots
    from dartree_exp.report.plots.style import svg

    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots(in_order(runs)):
        write_atomic(folder / f"{plot.name}.svg", svg(plot.draw()))
        print(folder / f"{plot.name}.svg")


def _write_page(runs: Sequence[Run], tables: Sequence[Table], path: Path, arguments: Sequence[str] | None) -> None:
    from dartree_exp.report.figures import plots
    from dartree_exp.report.page import page

    if not runs:
        raise RecordError(f"--html {path}: there is no run to report")
    ordered = in_order(runs)
    words = ["python", "-m", "dartree_exp.report", *(sys.argv[1:] if arguments is None else arguments)]
    title = ordered[0].path.name if len(ordered) == 1 else ordered[0].path.parent.name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(title, ordered, tables, plots(ordered), shlex.join(words)))
    print(path)


def _save_wandb_report(runs: Sequence[Run], address: str) -> None:
    from dartree_exp.trackers.wandb_report import save_comparison_report

    entity, _, project = address.partition("/")
    if not entity or not project or "/" in project:
        raise RecordError(f"--wandb-report {address}: must be ENTITY/PROJECT")
    done = [run for run in in_order(runs) if run.summary is not None]
    if not done:
        raise RecordError("--wandb-report: none of these runs is done")
    names, _ = name_runs(done)
    summaries = {name: run.summary for name, run in zip(names, done, strict=True) if run.summary is not None}
    note = ". ".join([lead(done, names)[0], *stamp(done)])
    print(save_comparison_report(done[0].path.parent.name, summaries, project, entity, note))


def _complain(error: UserError) -> bool:
    print(f"error: {error}", file=sys.stderr)
    return True


if __name__ == "__main__":
    sys.exit(main())
