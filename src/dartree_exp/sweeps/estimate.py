"""What a sweep will cost, said before it starts: points, prompts, tokens at most, and the time that
recorded runs suggest.
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

_MOST_RUNS = 20  # newest recorded runs that are looked at


@dataclass(frozen=True)
class Work:
    """What is left of a sweep: runs, turns of a run (least and most, None: not known), tokens at
    most by either arm.
    """

    runs: int
    done: int
    turns: tuple[int, int] | None
    drafted: int
    plain: int


@dataclass(frozen=True)
class Rates:
    """Medians of recorded runs: tokens per second of the methods and of plain decoding, and how
    many runs.
    """

    drafted: float
    plain: float
    runs: int


def work_left(configs: Sequence[Config], sweep_dir: Path, times: int = 1) -> Work:
    """Count the work of these points in this folder; points with the same run folder count once,
    done ones not at all.

    times: so many points like each of these (a search has proposed none yet).
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
    """Turns to decode; of a hub's data set, which is not fetched for this, at most. None: not
    known.
    """
    if benchmark.path is None and benchmark.dataset is not None:
        return min((n for n in (benchmark.limit, benchmark.count) if n is not None), default=None)
    from dartree_exp.prompts import load_prompts

    try:
        return sum(len(prompt.turns) for prompt in load_prompts(benchmark))
    except UserError:  # the run will say so
        return None


def recorded_rates(config: Config) -> Rates | None:
    """What runs of this target on this machine, anywhere under `output`, recorded; None where there
    is none.
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
            continue  # another version's, or damaged: the report says so
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
            f"{work.runs} runs{before}; how many prompts is known when the data set is loaded, "
            "so no estimate of the time"
        )
        return
    low, high = work.turns
    yield (
        f"{work.runs} runs{before} of {low if low == high else f'{low} to {high}'} prompts (turns "
        "of dialogues and repeats "
        f"counted): at most {work.drafted:,} tokens by the methods, {work.plain:,} by plain "
        "decoding"
    )
    rates, model = recorded_rates(configs[0]), configs[0].model.name
    if rates is None:
        yield (
            f"no estimate of the time: {configs[0].output} holds no finished run of {model} from "
            "this machine"
        )
        return
    yield (
        f"at most about {duration(work.drafted / rates.drafted + work.plain / rates.plain)} of "
        "decoding, one run after the "
        f"other: {rates.drafted:.0f} tokens/s, plainly {rates.plain:.0f} (medians of {rates.runs} "
        f"finished runs of {model} "
        "on this machine)"
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
