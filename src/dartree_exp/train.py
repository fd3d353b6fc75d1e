"""`python -m dartree_exp.train`: train a drafter's backbone, then a head on it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dartree_exp.console.closed_pipe import survive_closed_pipe
from dartree_exp.console.terminate import terminate
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.training.command import MISTAKE, run

BUSY = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with these arguments (default: the command line's). Returns the exit status.

    Raises UserError for a mistake.
    """
    parser = _Parser("dartree_exp.train", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("-cd", "--config-dir", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)

    from dartree_exp.config.composition import Program, composed, normalise
    from dartree_exp.config.load import to_yaml, typed
    from dartree_exp.config.training import TrainConfig, check_training

    program = Program("train", TrainConfig)
    if options.help:
        from dartree_exp.console.help import train_help_text

        print(train_help_text(program))
        return 0
    folders = [options.config_dir] if options.config_dir else []
    overrides = normalise(options.overrides, folders, program)
    config = typed(composed(overrides, program, folders), TrainConfig, overrides)
    if options.cfg:
        print(to_yaml(config), end="")
        return 0
    check_training(config)

    from dartree_exp.records.lock import FolderBusy
    from dartree_exp.training.session import train

    speaks = os.environ.get("RANK", "0") == "0"  # of the processes that `torchrun` started
    try:
        said = train(config)
    except FolderBusy as error:
        print(f"dartree_exp.train: {error}", file=sys.stderr)
        return BUSY
    except UserError:
        if speaks:
            raise
        return MISTAKE
    if speaks:
        print(said)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    with survive_closed_pipe():
        status = run(main)
    sys.exit(status)
