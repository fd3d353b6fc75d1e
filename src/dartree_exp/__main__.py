"""`python -m dartree_exp`: starts `launch.job` through Hydra, prints mistakes as one line and ends
a sweep.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dartree_exp.console.closed_pipe import survive_closed_pipe
from dartree_exp.console.printable import printable_line
from dartree_exp.console.terminate import Terminated, terminate
from dartree_exp.errors import ConfigError, UserError

if TYPE_CHECKING:
    from dartree_exp.config.schema import Config
    from dartree_exp.records.folder import RunFolder

_INTERRUPTED, _TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments (default: the command line's). Returns the exit status."""
    with survive_closed_pipe():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in arguments:
        print(f"dartree_exp {metadata.version('dartree_exp')}")
        return 0
    if {"--help", "-h"} & set(arguments):
        return _help([text for text in arguments if text not in ("--help", "-h")])

    import hydra

    from dartree_exp.config.composition import (
        COMPOSITION_ERRORS,
        CONFIG_MODULE,
        CONFIG_NAME,
        VERSION_BASE,
        explain,
        first_mistake,
        normalise,
        one_line,
    )
    from dartree_exp.records.environment import COMMAND, module_command
    from dartree_exp.sweeps import launch, outcomes
    from dartree_exp.sweeps.sweep import SweepFolder, finish

    try:
        flags, overrides, config_dirs = _split(arguments)
    except UserError as error:
        return _refuse(str(error))
    typed = arguments
    completion = bool(
        {"--shell-completion", "-sc"} & set(flags)
    )  # then `install=bash` is no setting
    overrides = overrides if completion else normalise(overrides, config_dirs)
    arguments = [*flags, *overrides]
    # Checked before Hydra, which makes a sweep's folder first. Choices on another search path are
    # not known here.
    if not completion and not any(text.startswith("hydra.searchpath") for text in overrides):
        mistake = first_mistake(overrides, config_dirs)
        if mistake is not None:
            return _refuse(mistake)
    start = hydra.main(
        version_base=VERSION_BASE, config_path=f"pkg://{CONFIG_MODULE}", config_name=CONFIG_NAME
    )
    interrupted: int | None = None
    broken: Exception | None = None
    variables = {
        outcomes.SWEEP_ID: outcomes.new_sweep_id(),
        COMMAND: module_command("dartree_exp", typed),
    }
    # Completion needs the name of the program; Hydra would use `python`.
    with _process_settings(["dartree_exp" if completion else sys.argv[0], *arguments], variables):
        try:
            start(update_wrapper(partial(launch.job, run=run_point), launch.job))()
        except KeyboardInterrupt as error:
            interrupted = _TERMINATED if isinstance(error, Terminated) else _INTERRUPTED
            print("dartree_exp: interrupted; rerun the same command to resume", file=sys.stderr)
        except Exception as error:
            if SweepFolder.path is None and isinstance(error, COMPOSITION_ERRORS):
                return _refuse(explain(error, overrides, config_dirs))
            if SweepFolder.path is None and not isinstance(error, OSError | UserError):
                raise
            if SweepFolder.path is None:
                return _refuse(one_line(error), status=1)
            # The points record their own errors, so this one is the launcher's or the sweeper's.
            broken = error
        return finish(interrupted, broken)


def run_point(config: Config, folder: RunFolder) -> None:
    """Run one point. Imports torch only here: after the settings were checked, in the worker's
    process.
    """
    from dartree_exp.run import run

    run(config, folder)


def _help(arguments: Sequence[str]) -> int:
    from dartree_exp.console.help import help_text

    try:
        _, overrides, config_dirs = _split(arguments)
        print(help_text(overrides, config_dirs))
    except UserError as error:
        return _refuse(str(error))
    return 0


class _Parser(argparse.ArgumentParser):
    """The flags of Hydra's command line, without --experimental-rerun, which loads a pickle."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        for names in ("--multirun -m", "--run -r", "--resolve", "--shell-completion -sc"):
            self.add_argument(*names.split(), action="store_true")
        self.add_argument("--hydra-help", action="store_true")
        for names in ("--package -p", "--config-path -cp", "--config-name -cn"):
            self.add_argument(*names.split())
        self.add_argument("--config-dir", "-cd", type=Path)
        self.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
        kinds = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
        self.add_argument("--info", "-i", nargs="?", const="all", choices=kinds)
        self.add_argument("overrides", nargs="*")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], list[Path]]:
    """The flags, the overrides (before or after them), and the folders given by --config-dir.

    Raises ConfigError for an unknown flag or value of a flag.
    """
    parsed, unknown = _Parser().parse_known_intermixed_args(arguments)
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: unknown flag; settings are written key=value (--help lists them)"
        )
    left = Counter(parsed.overrides)
    flags = []
    for argument in arguments:
        if left[argument]:
            left[argument] -= 1
        else:
            flags.append(argument)
    return flags, parsed.overrides, [parsed.config_dir] if parsed.config_dir else []


@contextmanager
def _process_settings(arguments: Sequence[str], variables: dict[str, str]) -> Iterator[None]:
    """Set argv and the environment variables for Hydra and the workers, and SIGTERM as an
    interrupt; restore them afterwards.
    """
    argv = sys.argv
    before = {name: os.environ.get(name) for name in ("HYDRA_FULL_ERROR", *variables)}
    handler: Any = signal.signal(signal.SIGTERM, terminate)
    sys.argv = list(arguments)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing a message and exiting
    os.environ.update(variables)
    try:
        yield
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refuse(message: str, status: int = 2) -> int:
    print(f"dartree_exp: {printable_line(message)}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
