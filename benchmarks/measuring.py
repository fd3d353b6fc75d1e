"""Shared by the measurements of this folder: options, the loaded parts, the record, numbers."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

from dartree_exp.config import compose
from dartree_exp.config.schema import Config
from dartree_exp.errors import UserError
from dartree_exp.prompts import load_prompts
from dartree_exp.records.environment import load_average
from dartree_exp.report.footer import machine as machine_line

T = TypeVar("T")


def options(
    description: str | None, *, repeats: int, limit: int = 1, tokens: int = 1
) -> ArgumentParser:
    """The options of all measurements, with these defaults, and `key=value` settings of a run."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="key=value, as of python -m dartree_exp")
    parser.add_argument("--limit", type=int, default=limit, help="prompts of the benchmark")
    parser.add_argument("--tokens", type=int, default=tokens, help="new tokens of each answer")
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--dtype", default="auto", help="as engine.dtype")
    parser.add_argument("--threads", type=int, help="as engine.threads")
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser


def configured(arguments: Namespace, *defaults: str, last: str | None = None) -> Config:
    """The configuration of these options and the `key=value` settings.

    defaults: settings that the user's override. last: one that overrides the user's. Raises
    ConfigError.
    """
    if arguments.repeats < 1:
        raise UserError(f"--repeats {arguments.repeats}: must be at least 1")
    threads = "null" if arguments.threads is None else arguments.threads
    settings = [
        *defaults,
        f"benchmark.limit={arguments.limit}",
        f"decoding.max_new_tokens={arguments.tokens}",
        f"engine.dtype={arguments.dtype}",
        f"engine.threads={threads}",
        *arguments.settings,
    ]
    return compose(settings if last is None else [*settings, last])


def prepared(config: Config) -> tuple[Any, list[tuple[Any, list[int]]], dict[str, Any]]:
    """The warmed-up arms, the prompts with their ids, and the environment of the record.

    Only prompts that fit target and drafter; raises UserError if there are none.
    """
    from dartree_exp.runs.arms import Arms
    from dartree_exp.runs.costs import with_costs
    from dartree_exp.runs.environment import environment
    from dartree_exp.runs.warm_up import warm_up

    prompts = load_prompts(config.benchmark)
    arms = Arms.load(config)
    fitting = [(prompt, ids) for prompt, ids in arms.fitting(prompts) if not arms.fallback(ids)]
    if not fitting:
        raise UserError("no prompt fits the target and the drafter")
    machine = warm_up(arms.target, arms.method, config, arms.clock, fitting[0][1])
    arms = replace(arms, method=with_costs(arms.method, machine.costs, config.budget))
    return arms, fitting, environment(arms.target, arms.method, machine)


def finish(record: dict[str, Any], file: Path | None) -> None:
    """Note the load, print the machine and write the record as JSON."""
    environment = record["environment"]
    environment["load"]["end"] = load_average()
    load = environment["load"]
    print(
        f"\n{machine_line(environment)}, transformers {environment['packages']['transformers']}, "
        f"load {load['start']} to {load['end']} on {load['cores']} cores"
    )
    if file is not None:
        file.write_text(json.dumps(record, indent=1) + "\n")


def in_turn(items: Sequence[T], first: int) -> list[T]:
    """All items, beginning with another one each time: `first` modulo their number."""
    first %= len(items)
    return [*items[first:], *items[:first]]


def quartiles(values: Iterable[float]) -> dict[str, float]:
    """Median and quartiles of at least one value."""
    values = list(values)
    low, middle, high = quantiles(values, n=4, method="inclusive") if values[1:] else values * 3
    return {"value": middle, "low": low, "high": high}


def cell(estimate: dict[str, Any], digits: int = 2) -> str:
    """`1.23 [1.10, 1.40]`; the value alone if it has no interval."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None:
        return "-"
    rest = "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{rest}"


def command(name: str, main: Callable[[], None]) -> int:
    """Run a measurement; a mistake of the user is one line on stderr and exit status 2."""
    try:
        main()
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return 0
