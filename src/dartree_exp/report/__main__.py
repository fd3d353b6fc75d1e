"""`python -m dartree_exp.report <folders>`: tables, plots and pages of runs, from their files
alone.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from dartree_exp.console.closed_pipe import survive_closed_pipe
from dartree_exp.errors import UserError
from dartree_exp.records import RecordError, Run, find_runs
from dartree_exp.records.reader import is_run_folder
from dartree_exp.report.compare import comparison, in_order
from dartree_exp.report.files import Files, complain
from dartree_exp.report.footer import stamp
from dartree_exp.report.labels import name_runs
from dartree_exp.report.latex import latex
from dartree_exp.report.table import Table
from dartree_exp.report.tables import run_tables
from dartree_exp.report.verdicts import lead


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 if a folder or another request failed (the others are reported)."""
    with survive_closed_pipe():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    console = Console()
    if options.tree is not None:
        return _show_tree(options.folders, options.tree, console)

    failed = False
    files = Files()
    loose: list[Run] = []
    found: list[Run] = []
    tables: list[Table] = []
    for folder in options.folders:
        try:
            runs, bad = _readable(folder)
            failed |= bad
            found += runs
            own = [
                run_tables(run, console if len(runs) == 1 else None, files.write) for run in runs
            ]
            if options.latex:
                for run, table in zip(runs, own, strict=True):
                    files.write(run.path / "table.tex", latex([table]))
            if is_run_folder(folder):
                loose += runs
            if len(runs) == 1 and len(options.folders) == 1:
                tables += own
            if len(runs) > 1:
                compared = comparison(runs, console, options.baseline, folder, files.write)
                if options.latex:
                    files.write(folder / "comparison.tex", latex(compared))
                tables += compared
        except UserError as error:
            failed = complain(error)
    for request in _requests(options, files, console, loose, found, tables, arguments):
        try:
            request()
        except UserError as error:  # the other requests continue
            failed = complain(error)
    return 2 if files.conclude() or failed else 0


def _requests(
    options: argparse.Namespace,
    files: Files,
    console: Console,
    loose: Sequence[Run],
    found: Sequence[Run],
    tables: list[Table],
    arguments: Sequence[str] | None,
) -> Iterator[Callable[[], object]]:
    """The requests besides the tables of each folder, in the order of `tables`."""
    if len(loose) > 1:
        yield lambda: tables.extend(comparison(loose, console, options.baseline))
    for key in options.swap:
        yield partial(_swapped, found, key, console, options, files, tables)
    if options.published:
        yield lambda: _published(found, console, options, files, tables)
    if options.plots is not None:
        yield lambda: _write_plots(found, options.plots, files)
    if options.html is not None:
        yield lambda: _write_page(found, tables, options.html, arguments, files)
    if options.wandb_report is not None:
        yield lambda: _save_wandb_report(found, options.wandb_report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.report",
        description="Rebuild the tables of run folders: table.md and table.csv in each, "
        "comparison.md and comparison.csv in a sweep folder.",
    )
    parser.add_argument("folders", nargs="+", type=Path, help="run folders or sweep folders")
    parser.add_argument(
        "--baseline", help="the run to compare with: its name, method or folder name"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="one page with tables, plots and the tree viewer"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="every plot as an SVG file")
    parser.add_argument("--latex", action="store_true", help="also write the tables as .tex files")
    parser.add_argument(
        "--swap",
        metavar="KEY",
        action="append",
        default=[],
        help="differences between runs that differ in this setting or group alone, e.g. drafter; "
        "may be repeated",
    )
    parser.add_argument(
        "--published", action="store_true", help="the papers' numbers beside ours, marked as theirs"
    )
    parser.add_argument(
        "--wandb-report",
        metavar="ENTITY/PROJECT",
        help="a report on W&B over the runs that tracker=wandb sent there",
    )
    parser.add_argument(
        "--tree",
        metavar="SAMPLE:ROUND",
        help="only draw the draft tree of this round of one run",
    )
    return parser


def _readable(folder: Path) -> tuple[list[Run], bool]:
    """The readable runs in `folder`, and whether there are others (an error is printed)."""
    good, bad = [], False
    for run in find_runs(folder):
        if run.unreadable:
            bad = complain(RecordError(run.unreadable))
        else:
            good.append(run)
    return good, bad


def _show_tree(folders: Sequence[Path], place: str, console: Console) -> int:
    from dartree_exp.report.treeview import find_tree, print_tree

    try:
        runs = [run for folder in folders for run in find_runs(folder)]
        if len(runs) != 1:
            raise RecordError(
                f"--tree draws a round of one run, but there are {len(runs)} runs: name one folder"
            )
        print_tree(console, *find_tree(runs[0], place))
    except UserError as error:
        complain(error)
        return 2
    return 0


def _swapped(
    runs: Sequence[Run],
    key: str,
    console: Console,
    options: argparse.Namespace,
    files: Files,
    tables: list[Table],
) -> None:
    from dartree_exp.report.swap import swap_tables

    swapped = swap_tables(runs, key)
    _show(swapped, f"swap_{key}", console, options, files)
    tables += swapped


def _published(
    runs: Sequence[Run],
    console: Console,
    options: argparse.Namespace,
    files: Files,
    tables: list[Table],
) -> None:
    from dartree_exp.report.published import published_tables

    found = published_tables(in_order(runs))
    _show(found, "published", console, options, files)
    if not found:
        print(
            "published: no paper in the data file has these methods at this temperature",
            file=sys.stderr,
        )
    tables += found


def _show(
    tables: Sequence[Table], name: str, console: Console, options: argparse.Namespace, files: Files
) -> None:
    """Print tables; if one folder was given, write them to it."""
    for table in tables:
        table.print(console)
    if tables and len(options.folders) == 1:
        files.write(
            options.folders[0] / f"{name}.md", "\n".join(table.markdown() for table in tables)
        )
        if options.latex:
            files.write(options.folders[0] / f"{name}.tex", latex(tables))


def _write_plots(runs: Sequence[Run], folder: Path, files: Files) -> None:
    from dartree_exp.report.figures import plots
    from dartree_exp.report.plots.style import svg

    for plot in plots(in_order(runs)):
        file = folder / f"{plot.name}.svg"
        if files.write(file, svg(plot.draw())):
            print(file)


def _write_page(
    runs: Sequence[Run],
    tables: Sequence[Table],
    path: Path,
    arguments: Sequence[str] | None,
    files: Files,
) -> None:
    from dartree_exp.report.figures import plots
    from dartree_exp.report.page import page

    if not runs:
        raise RecordError(f"--html {path}: no run to report")
    ordered = in_order(runs)
    words = [
        "python",
        "-m",
        "dartree_exp.report",
        *(sys.argv[1:] if arguments is None else arguments),
    ]
    title = ordered[0].path.name if len(ordered) == 1 else ordered[0].path.parent.name
    if files.write(path, page(title, ordered, tables, plots(ordered), shlex.join(words))):
        print(path)


def _save_wandb_report(runs: Sequence[Run], address: str) -> None:
    from dartree_exp.report.wandb_report import save_comparison_report

    entity, _, project = address.partition("/")
    if not entity or not project or "/" in project:
        raise RecordError(f"--wandb-report {address}: must be ENTITY/PROJECT")
    done = [run for run in in_order(runs) if run.summary is not None]
    if not done:
        raise RecordError("--wandb-report: none of these runs is done")
    names, _ = name_runs(done)
    summaries = {
        name: run.summary for name, run in zip(names, done, strict=True) if run.summary is not None
    }
    note = ". ".join([lead(done, names)[0], *stamp(done)])
    print(save_comparison_report(done[0].path.parent.name, summaries, project, entity, note))


if __name__ == "__main__":
    sys.exit(main())
