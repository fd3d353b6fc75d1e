"""The pages of `--help`: commands, choices, methods, and every key with default and meaning."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from dartree_exp.config import compose
from dartree_exp.config.composition import (
    Program,
    composed,
    first_comment,
    groups,
    hydra_groups,
)
from dartree_exp.config.knobs import describe, knobs
from dartree_exp.config.load import typed
from dartree_exp.config.methods import published
from dartree_exp.config.parts import KINDS

_HEAD = """\
Draft-tree speculative decoding: compare drafters, heads, trees and budgets against plain
decoding of the same target.

usage: python -m dartree_exp [-m] [key=value ...]

  python -m dartree_exp                               DARTree (pruned) on the embedded model
  python -m dartree_exp tree=pruned tree.width=12 tree.beta=-0.2
  python -m dartree_exp +method=ddtree tree.budget=32 a published method; later settings win
  python -m dartree_exp -m tree.budget=16,32,64,128   a sweep; sweep.name=NAME resumes it later
  python -m dartree_exp -m method=dflash,ddtree,domino,dartree_pruned benchmark.limit=8
  python -m dartree_exp model=toy benchmark.limit=1   a second of work, no download
  python -m dartree_exp --cfg job                     the settings of a run, without running
  python -m dartree_exp --info                        where the settings come from
  python -m dartree_exp.report multirun/NAME          tables of earlier runs

-m, --multirun runs every combination of comma-separated values. --config-dir DIR adds your own
choices, such as DIR/method/mine.yaml; parts=[MODULE] adds trees, heads and other parts.
--resolve prints the values of ${...}.
Exit status: 0 all done, 1 a run failed, 2 a mistake in the settings, 3 another process uses a
run folder, 130 interrupted.
"""
_GENERATE_HEAD = """\
Stream one answer to one prompt: accepted drafts in green, then tokens, tau and speed. Nothing
is recorded.

usage: python -m dartree_exp.generate "your prompt" [key=value ...]

  python -m dartree_exp.generate "Why is the sky blue?"           DARTree on the embedded model
  python -m dartree_exp.generate "Why is the sky blue?" method=ddtree tree.budget=32
  python -m dartree_exp.generate "Tell me a story" decoding=sample decoding.max_new_tokens=400
  python -m dartree_exp.generate "Hello" model=toy                a second of work, no download
  python -m dartree_exp.generate "Hello" model.path=FOLDER drafter.path=FOLDER     your weights

From Python: from dartree_exp.generate import generate; generate("Why is the sky blue?").text
Exit status: 0, 2 a mistake in the prompt or a setting, 130 interrupted.
"""
_TRAIN_HEAD = """\
Train a drafter for a target: its backbone (DFlash), then a correction head on it (Domino's GRU,
DSpark's Markov heads). Prepare prompts, text and features first: docs/training.md.

usage: python -m dartree_exp.train [training=backbone|head|joint|dspark] [key=value ...]

  python -m dartree_exp.train data=text.jsonl features=features training.minutes=40 name=backbone
  python -m dartree_exp.train training=head training.init=multirun/training/backbone \\
      data=text.jsonl features=features training.minutes=10 name=gru
  python -m dartree_exp.train training=head training.head=markov ...     one of DSpark's heads
  torchrun --standalone --nproc-per-node 2 -m dartree_exp.train ...      one run, two processes
  python -m dartree_exp.train --cfg job                                  the settings, no training

The run folder is output/training/name: config.yaml, environment.json, status.json, curve.jsonl,
checkpoint.safetensors. Rerun to resume, also after kill -9; a finished training is skipped.
--config-dir DIR adds your own choices, such as DIR/training/mine.yaml.
Exit status: 0 done, 1 failed, 2 a mistake in a setting or a file, 3 another process uses the run
folder, 130 interrupted.
"""
_OF_ONE_ANSWER = ("model", "drafter", "tree", "budget", "verify", "decoding", "engine")
_KEY_WIDTH = 32
_LEAST_WIDTH = 80


def help_text(overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()) -> str:
    """The whole page, with the choices in `config_dirs` and the parts of `parts=` in the overrides.
    Raises ConfigError.
    """
    config = compose([text for text in overrides if text.lstrip("+").startswith("parts=")])
    options = groups(config_dirs) | hydra_groups()
    pages = (_groups(options), _parts(), _methods(config_dirs), _keys(config))
    return "\n".join([_HEAD, *(line for page in pages for line in (*page, ""))])


def generate_help_text() -> str:
    """The page of `python -m dartree_exp.generate --help`."""
    return "\n".join([_GENERATE_HEAD, *_methods(), "", *_keys(compose(), _OF_ONE_ANSWER)])


def train_help_text(program: Program) -> str:
    """The page of `python -m dartree_exp.train --help`."""
    config: Any = typed(composed((), program), program.schema)
    return "\n".join([_TRAIN_HEAD, *_groups(groups(program=program)), "", *_keys(config)])


def _groups(options: dict[str, list[str]]) -> list[str]:
    width = max(map(len, options))
    return [
        "Choices (group=option):",
        *(f"  {name:{width}}  {', '.join(options[name]) or '-'}" for name in options),
    ]


def _parts() -> list[str]:
    """One line per part, from its spec."""
    lines = ["Parts (key=name):"]
    for parts in KINDS.values():
        for spec in parts.values():
            lines += _entry(f"  {parts.kind}={spec.name}", spec.meaning)
    return lines


def _methods(config_dirs: Sequence[Path] = ()) -> list[str]:
    """One line per method, from its file in conf/method, and the settings that may vary."""
    known = published()
    lines = ["Methods (method=name; settings in brackets may vary without changing the name):"]
    for name in groups(config_dirs)["method"]:
        free = f" [{', '.join(known[name].free_knobs)}]" if name in known else ""
        lines += _entry(f"  {name}", first_comment("method", name, config_dirs) + free)
    return lines


def _keys(config: Any, only: tuple[str, ...] = ()) -> list[str]:
    """Every key of a configuration, or only those of some groups."""
    lines = ["Keys (with defaults; allowed values in brackets):"]
    group = ""
    for key, hint, knob in knobs(type(config)):
        head = key.rpartition(".")[0]
        if only and head not in only:
            continue
        if head != group:
            lines.append("")
            group = head
        # These two are null in conf/ and filled in by the checks.
        value = None if key in ("tree.scoring", "method") else attrgetter(key)(config)
        setting = f"{key}={_shown(value)}" if not isinstance(value, dict) else f"{key}.NAME"
        lines += _entry(f"  {setting}", f"{knob.meaning} [{describe(hint, knob)}{_readers(key)}]")
    return lines


def _readers(key: str) -> str:
    """The parts that read a setting, if not all parts of the kind do."""
    group, _, name = key.partition(".")
    for parts in KINDS.values():
        readers = [spec.name for spec in parts.values() if name in spec.reads]
        if parts.kind.startswith(f"{group}.") and 0 < len(readers) < len(parts):
            return f"; read by {', '.join(readers)}"
    return ""


def _entry(left: str, right: str) -> list[str]:
    """Two columns, wrapped to the terminal; a long left side gets its own line."""
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((120, 0)).columns)
    indent = " " * (_KEY_WIDTH + 4)
    lines = textwrap.wrap(right, width, initial_indent=indent, subsequent_indent=indent)
    if len(left) < len(indent) - 1:
        return [left + lines[0][len(left) :], *lines[1:]]
    return [left, *lines]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
