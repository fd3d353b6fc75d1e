"""The notes below every table: setup, machine and definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dartree_exp.config.unread import unread
from dartree_exp.metrics.measures import METRICS
from dartree_exp.metrics.stats import LEVEL, REPLICATES
from dartree_exp.records import Run
from dartree_exp.records.environment import code_version

_KNOBS = ("budget", "width", "beta", "candidates", "draft_sampling")
ROW_INVARIANT = (
    "only exact passes here: the warm-up found that a row's bits do not depend on the number of "
    "other rows (row_invariant), so rounding cannot explain a difference"
)
SHARED = "shared"
INTERVAL = f"{LEVEL:.0%} percentile bootstrap over prompts"
PROVENANCE = (
    "all settings, budgets included, come from the configuration; none was chosen by its result"
)


def setting(config: Mapping[str, Any], key: str) -> Any:
    """Value of a dotted key of a configuration; None if it is missing."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def definitions(*names: str) -> list[str]:
    """A note for each metric, and one for the intervals."""
    notes = [f"{name.replace('_', ' ')}: {METRICS[name].definition}" for name in names]
    return [
        *notes,
        f"[low, high]: {INTERVAL}, {REPLICATES} resamples of distinct prompts; n counts them",
    ]


def machine(environment: Mapping[str, Any]) -> str:
    """Hardware, threads, dtype and torch version in one line."""
    if not environment:
        return "environment not recorded"
    cpu = environment.get("cpu") or {}
    parts = [
        str(setting(environment, "device_details.name") or environment.get("device")),
        f"{cpu.get('model')} ({cpu.get('cores')} cores)",
        f"{environment.get('threads')} threads",
        str(environment.get("dtype")),
        f"torch {setting(environment, 'packages.torch')}",
    ]
    flags = [flag for flag in cpu.get("flags", ()) if flag in ("amx_bf16", "avx512_bf16")]
    return ", ".join(parts + flags)


def setup(config: Mapping[str, Any]) -> str:
    """Target, benchmark and decoding in one line."""
    benchmark = (
        f"{setting(config, 'benchmark.name')} {setting(config, 'benchmark.version') or ''}".strip()
    )
    temperature = setting(config, "decoding.temperature")
    law = (
        "greedy (T = 0)"
        if not temperature
        else f"T = {temperature:g}, seed {setting(config, 'decoding.seed')}"
    )
    cap = setting(config, "decoding.max_new_tokens")
    return (
        f"target {setting(config, 'model.name')}, benchmark {benchmark}, {law}, at most {cap} "
        "new tokens"
    )


def method(config: Mapping[str, Any]) -> str:
    """Drafter and tree in one line, with the knobs that the tree reads."""
    tree, ignored = setting(config, "tree") or {}, unread(config)
    values = dict(tree)
    if tree.get("candidates_follow_budget"):
        values["candidates"] = "min(budget, vocabulary)"
        ignored.discard("tree.candidates")
    names = (
        name for name in _KNOBS if f"tree.{name}" not in ignored and values.get(name) is not None
    )
    knobs = ", ".join(f"{name.replace('_', ' ')} {values[name]}" for name in names)
    return f"drafter {setting(config, 'drafter.name')}, tree {tree.get('name')} ({knobs})"


def stamp(runs: Sequence[Run]) -> list[str]:
    """Notes on setup, hardware, verdict rule, code version and the origin of the settings."""
    return [
        *dict.fromkeys(setup(run.config) for run in runs),
        *dict.fromkeys(machine(run.environment) for run in runs),
        *dict.fromkeys(rule for run in runs for rule in verdict_rule(run.environment)),
        *_codes(runs),
        PROVENANCE,
    ]


def _codes(runs: Sequence[Run]) -> list[str]:
    """The number of runs of each version of the code, if there are several."""
    counted = Counter(code_version(run.environment) for run in runs if run.environment)
    if len(counted) < 2:
        return []
    return [
        "runs of different versions of the code: "
        f"{'; '.join(f'{n} of {code}' for code, n in counted.items())}"
    ]


def verdict_rule(environment: Mapping[str, Any]) -> list[str]:
    """What passes as lossless in this environment, if recorded."""
    if environment.get("row_invariant") is True:
        return [ROW_INVARIANT]
    tolerance = environment.get("tolerance")
    if not isinstance(tolerance, int | float) or not tolerance:
        return []
    return [
        f"near tie: every token within {tolerance:.3g} logits of the maximum in its own context "
        "(tolerance measured before)"
    ]


def beside(config: Mapping[str, Any]) -> str:
    """Where plain decoding was timed."""
    return (
        "of the sweep, timed separately"
        if setting(config, "baseline") == SHARED
        else "in the same process"
    )
