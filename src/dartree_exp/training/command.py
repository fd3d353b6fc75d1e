"""What every training command shares: its options' types, `--help`, and one line on stderr for
every mistake.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import dartree_exp
from dartree_exp.errors import RunError, UserError
from dartree_exp.training.errors import first_line

PACKAGE = Path(dartree_exp.__file__).resolve().parent
MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
Number = TypeVar("Number", int, float)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Page(argparse.RawDescriptionHelpFormatter):
    """Of every option what it takes, and its default."""

    def _get_help_string(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._HelpAction):
            return str(action.help)
        of_type = str(getattr(action.type, "__doc__", None) or "a text").rstrip(".")
        takes = _TAKES.get(action.type, of_type)
        many = {"*": "any number, each ", "+": "one or more, each "}.get(str(action.nargs), "")
        default = action.default
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        end = "default: none" if shown in (None, "") else f"default {shown}"
        return f"{action.help} [{many}{takes}; {'required' if action.required else end}]"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        number = action.type in (positive, natural)
        return "N" if number else super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """The parser of `python -m dartree_exp.training.NAME`. text: the module's docstring, which
    `--help` shows. example: options that work.
    """

    def __init__(self, name: str, text: str | None, example: str) -> None:
        prog = f"python -m dartree_exp.training.{name}"
        super().__init__(
            prog=prog,
            description=(text or "").strip(),
            epilog=f"example:\n  {prog} {example}",
            formatter_class=_Page,
            allow_abbrev=False,
        )

    def shared(self, *names: str) -> None:
        """Options that several commands have."""
        for name in names:
            self.add_argument(f"--{name}", **_SHARED[name])

    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        self.exit(MISTAKE, f"{self.prog}: {message} (--help lists the options)\n")


def run(main: Callable[[list[str] | None], int], argv: list[str] | None = None) -> int:
    """The exit status of a command: 2 for a mistake of the caller, 1 for a run that failed, 130
    where interrupted.
    """
    try:
        return main(argv)
    except UserError as error:
        cause = error.__cause__
        failed = isinstance(error, RunError) or (
            isinstance(cause, OSError) and cause.errno in _NO_SPACE
        )
        code = FAILURE if failed else MISTAKE
        return _say(first_line(error), code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = FAILURE if error.errno in _NO_SPACE else MISTAKE
        return _say(f"{where}{error.strerror or first_line(error)}", code)
    except KeyboardInterrupt:
        return _say("interrupted; run the same command again", INTERRUPTED)


def _say(message: str, code: int) -> int:
    print(f"dartree_exp.training: {message}", file=sys.stderr)
    return code


def output(text: str) -> Path:
    """The type of options that name what a command writes. The installed package is never written
    to.
    """
    path = Path(text)
    if path.resolve().is_relative_to(PACKAGE):
        raise argparse.ArgumentTypeError(
            f"{text} is inside the installed package, where nothing may be written"
        )
    return path


def output_file(text: str) -> Path:
    """`output` for a file, whose folder must be there: known before the work, not after it."""
    path = output(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} must be a file in a folder that exists")
    if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: permission denied")
    return path


def positive(text: str) -> int:
    """An integer >= 1."""
    if (value := _number(int, text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return value


def natural(text: str) -> int:
    """An integer >= 0."""
    if (value := _number(int, text)) < 0:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 0")
    return value


def _number(kind: Callable[[str], Number], text: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


_TAKES: dict[Any, str] = {
    None: "a text",
    Path: "a path",
    output: "a path",
    output_file: "a file in a folder that exists",
    positive: "an integer >= 1",
    natural: "an integer >= 0",
}
"""What an option of a type takes; of other types their first line says it."""
_SHARED: dict[str, dict[str, Any]] = {
    "data": {
        "type": Path,
        "required": True,
        "help": "the text that the target generated and that was captured (.jsonl, .jsonl.gz)",
    },
    "target": {"help": "folder of the target, or toy; without it the embedded target"},
    "holdout": {"type": positive, "default": 8, "help": "held-out samples per domain, as captured"},
    "seed": {"type": natural, "default": 0, "help": "of the hold-out, as captured"},
    "threads": {"type": positive, "default": 1, "help": "CPU threads"},
    "drafter": {"type": Path, "required": True, "help": "folder of an exported drafter"},
    "set": {
        "nargs": "*",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "settings of python -m dartree_exp, such as model=toy",
    },
}
