"""The estimate printed before a sweep starts: runs, prompts, most tokens, and the time according to
recorded runs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from dartree_exp.config.identity import config_hash
from dartree_exp.config.schema import BenchmarkConfig, Config
from dartree_exp.console.printable import duration
from dartree_exp.errors import UserError
from dartree_exp.records.files import hash_of
from dartree_exp.records.folder import SUMMARY
from dartree_exp.records.reader import Run, is_done

_MOST_RUNS = 20  # newest recorded runs that are read


@dataclass(frozen=True)
class Work:
    """The work left in a sweep: runs, turns per run (least and most; None: unknown), most tokens of
    each arm.
    """

    runs: int
    done: int
    turns: tuple[int, int] | None
    drafted: int
    plain: int


@dataclass(frozen=True)
class Rates:
    """Medians of recorded runs, in tokens per second of the methods and of plain decoding; the
    number of runs.
    """

    drafted: float
    plain: float
    runs: int


def work_left(configs: Sequence[Config], sweep_dir: Path, times: int = 1) -> Work:
    """The work of these points in this folder; points with the same run folder count once, finished
    ones do not count.

    times: multiplies each point, for a search that has proposed none yet.
    """
    runs = {config_hash(config): config for config in configs}
    left = {
        name: config for name, config in runs.items() if config.force or not _done(sweep_dir / name)
    }
    turns: list[int | None] = []
    drafted, plain = 0, {}
    counted: dict[str, int | None] = {}
    for name, config in left.items():
        benchmark = hash_of(asdict(config.benchmark))
        if benchmark not in counted:
            counted[benchmark] = most_turns(config.benchmark)
        once = counted[benchmark]
        turns.append(None if once is None else once * config.repeats)
        tokens = (once or 0) * config.decoding.max_new_tokens
        drafted += tokens * config.repeats * times
        if config.baseline == "shared":
            parts = [
                asdict(getattr(config, part))
                for part in ("model", "decoding", "engine", "benchmark")
            ]
            plain[hash_of({"parts": parts, "protocol": config.protocol})] = tokens
        else:
            plain[name] = tokens * config.repeats * times
    known = [count for count in turns if count is not None]
    bounds = (min(known), max(known)) if known and len(known) == len(turns) else None
    return Work(len(left) * times, len(runs) - len(left), bounds, drafted, sum(plain.values()))


def most_turns(benchmark: BenchmarkConfig) -> int | None:
    """Turns to decode; an upper bound for a data set on the hub, which is not fetched. None:
    unknown.
    """
    if benchmark.path is None and benchmark.dataset is not None:
        return min((n for n in (benchmark.limit, benchmark.count) if n is not None), default=None)
    from dartree_exp.prompts import load_prompts

    try:
        return sum(len(prompt.turns) for prompt in load_prompts(benchmark))
    except UserError:  # the run will report it
        return None


def recorded_rates(config: Config) -> Rates | None:
    """The rates of runs of this target on this machine, anywhere under `output`; None if there are
    none.
    """
    drafted, plain = [], []
    files = sorted(Path(config.output).glob(f"*/*/{SUMMARY}"), key=_modified, reverse=True)
    for file in files[:_MOST_RUNS]:
        try:
            run = Run(file.parent)
            if run.environment.get("host") != platform.node() or run.config["model"] != asdict(
                config.model
            ):
                continue
            own, lean = (
                (run.summary or {})[key]["value"]
                for key in ("tokens_per_second", "ar_tokens_per_second")
            )
        except (UserError, OSError, KeyError, TypeError):
            continue  # of another version, or damaged
        if own and lean:
            drafted.append(own)
            plain.append(lean)
    return Rates(median(drafted), median(plain), len(drafted)) if drafted else None


def estimate(configs: Sequence[Config], sweep_dir: Path, times: int = 1) -> Iterator[str]:
    """Lines for the user; arguments as `work_left`."""
    work = work_left(configs, sweep_dir, times)
    before = f" ({work.done} done before)" if work.done else ""
    if not work.runs:
        yield f"nothing left to run{before}"
        return
    if work.turns is None:
        yield (
            f"{work.runs} runs{before}; no estimate of the time: the number of prompts is unknown "
            "until the data set is loaded"
        )
        return
    low, high = work.turns
    yield (
        f"{work.runs} runs{before} of {low if low == high else f'{low} to {high}'} prompts "
        "(counting turns of dialogues and repeats): "
        f"at most {work.drafted:,} tokens by the methods, {work.plain:,} by plain decoding"
    )
    rates, model = recorded_rates(configs[0]), configs[0].model.name
    if rates is None:
        yield (
            f"no estimate of the time: no finished run of {model} on this machine in "
            f"{configs[0].output}"
        )
        return
    yield (
        f"at most about {duration(work.drafted / rates.drafted + work.plain / rates.plain)} of "
        f"decoding, one run after the other: {rates.drafted:.0f} tokens/s, plain decoding "
        f"{rates.plain:.0f} (medians of {rates.runs} finished runs of {model} on this machine)"
    )


def _done(folder: Path) -> bool:
    try:
        return is_done(folder)
    except UserError:
        return False


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
