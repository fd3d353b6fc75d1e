"""The report as one self-contained HTML file: tables, plots and the tree viewer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from dartree_exp.metrics.measures import counts, prompt_units
from dartree_exp.records import Run
from dartree_exp.records.schema import UNJUDGED
from dartree_exp.report import footer, verdicts
from dartree_exp.report.caveats import is_incomplete, load_problem, planned
from dartree_exp.report.figures import Plot
from dartree_exp.report.labels import name_runs
from dartree_exp.report.plots.style import svg
from dartree_exp.report.table import Cell, Table
from dartree_exp.report.tables import run_table
from dartree_exp.report.treeview import viewer_data

MOST_ROUNDS = 360  # recorded trees of all runs; limits the page to a few megabytes


def page(
    title: str,
    runs: Sequence[Run],
    tables: Sequence[Table],
    drawn: Sequence[Plot],
    command: str = "",
) -> str:
    """The HTML of a report.

    Args:
        title: of the page. runs: in the order of the tables. tables: at the top. drawn: the plots.
        command: the command that rebuilds this page.
    """
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dartree_exp.report", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    names, _ = name_runs(runs)
    viewer = viewer_data(runs, names, most=max(8, MOST_ROUNDS // len(runs)))
    text = templates.get_template("report.html.j2").render(
        title=title,
        subtitle=list(dict.fromkeys(footer.setup(run.config) for run in runs)),
        ended=_ended(runs),
        alarms=_alarms(runs, names),
        facts=_facts(runs, tables),
        tables=[_table(table) for table in tables],
        plots=[
            {
                "name": p.name,
                "title": p.title,
                "caption": p.caption,
                "svg": svg(p.draw(), themed=True),
            }
            for p in drawn
        ],
        viewer=_script_json(viewer) if viewer else "",
        details=[
            {
                "name": name,
                "state": run.state,
                "folder": run.path.name,
                "table": _table(run_table(run)),
            }
            for name, run in zip(names, runs, strict=True)
        ],
        stamps=_stamps(runs, names),
        commands=list(dict.fromkeys(c for run in runs if (c := run.environment.get("command")))),
        rebuild=command,
        version=metadata.version("dartree_exp"),
    )
    # A lone surrogate cannot be written to a file.
    return text.encode("utf-8", "backslashreplace").decode()


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "lead": table.lead,
        "alarm": table.alarm,
        "headers": [header.replace("/\n", "/").replace("\n", " ") for header in table.headers],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
        "rules": table.rules,
        "notes": table.notes,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    head, *rest = cell.text.split("\n")
    number = next(
        (v for v in cell.values.values() if isinstance(v, int | float) and not isinstance(v, bool)),
        None,
    )
    return {"head": head, "rest": rest, "best": cell.best, "sort": number, "bad": cell.bad}


def _facts(runs: Sequence[Run], tables: Sequence[Table]) -> list[tuple[str, str, str]]:
    """The headline facts: value, label, remark; verdicts first."""
    samples = [sample for run in runs for sample in run.samples]
    numbers = verdicts.cell(samples).values
    prompts = len(
        {
            (footer.setting(run.config, "benchmark.name"), id)
            for run in runs
            for id in _distinct(run)
        }
    )
    proofs = [proof for run in runs if (proof := verdicts.proof_of(run)) is not None]
    done = sum(run.state == "DONE" for run in runs)
    gap = numbers["gap_max"]
    proved = (
        f"{sum(p[0] for p in proofs)} of {sum(p[1] for p in proofs)} exact in fp32"
        if proofs
        else ""
    )
    facts = []
    if (judged := verdicts.judged(counts(samples))) is not None:
        facts = [
            (str(numbers["wrong"]), f"wrong of {judged} outputs", proved),
            (str(numbers["exact"]), "exact, same ids as plain decoding", ""),
        ]
    if numbers[UNJUDGED]:
        facts.append((str(numbers[UNJUDGED]), "not judged by ids", "drawn by another rule"))
    if numbers["near_tie"]:
        facts.append(
            (str(numbers["near_tie"]), "near ties", "" if gap is None else f"largest gap {gap:.3g}")
        )
    facts += [
        (
            str(len(runs)),
            "run" if len(runs) == 1 else "runs",
            "all done" if done == len(runs) else f"{done} done",
        ),
        (str(prompts), "prompts", f"{len(samples)} answers"),
    ]
    compared = [table for table in tables if "Δ tau" in table.headers]
    if len(compared) == 1:  # several tables may have different best rows
        for header, label in (("tau macro", "best tau"), ("speedup", "best speedup")):
            column = list(compared[0].headers).index(header)
            for row in compared[0].rows:
                if row[column].best:
                    facts.append(
                        (row[column].text.split("\n")[0], label, str(row[0].values["run"]))
                    )
    return facts


def _alarms(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The alarms at the top of the page: wrong outputs, missing samples, invalid times."""
    said, alarm = verdicts.lead(runs, names if len(runs) > 1 else ())
    alarms = [said] * alarm
    for name, run in zip(names, runs, strict=True):
        head = f"{name}: " if len(runs) > 1 else ""
        problem = load_problem(run.environment)
        alarms += [f"{head}{problem}"] * bool(problem)
        if is_incomplete(run):
            alarms.append(f"{head}{len(run.samples)} of {planned(run)} samples, incomplete")
    return alarms


def _distinct(run: Run) -> Iterable[str]:
    """One id for each distinct decoded prompt; ids, because targets render the same prompt
    differently.
    """
    units = prompt_units(s for s in run.samples if s.error is None)
    return {unit: id for id, unit in reversed(units.items())}.values()


def _ended(runs: Sequence[Run]) -> str:
    ends = [run.status.get("ended") for run in runs]
    last = max((end for end in ends if end), default=None)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(last)) if last else "unfinished"


def _stamps(runs: Sequence[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """The distinct environments, each with its runs."""
    stamps: dict[str, dict[str, Any]] = {}
    for run, name in zip(runs, names, strict=True):
        lines = _environment(run.environment)
        stamps.setdefault(json.dumps(lines), {"lines": lines, "runs": []})["runs"].append(name)
    return list(stamps.values())


def _environment(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    git = environment.get("git") or {}
    commit = str(git.get("commit", ""))[:12] + (" with local changes" if git.get("dirty") else "")
    packages = environment.get("packages") or {}
    weights = environment.get("weights") or {}
    lines = [
        ("machine", footer.machine(environment)),
        ("platform", str(environment.get("platform") or "")),
        ("python", str(environment.get("python") or "")),
        ("packages", ", ".join(f"{name} {version}" for name, version in packages.items())),
        ("commit", commit),
        *((f"{role} weights", f"sha256 {str(digest)[:16]}…") for role, digest in weights.items()),
    ]
    return [(name, value) for name, value in lines if value]


def _script_json(value: object) -> str:
    """JSON for a script element, with characters escaped that could end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return (
        text.replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
