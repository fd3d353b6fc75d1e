"""The command line in an empty folder, with a stand-in for the models."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from dartree_exp.__main__ import main
from dartree_exp.config import Config
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.reader import Run

Work = Callable[[Config, RunFolder], None]


class Runs:
    """Stands in for `dartree_exp.run.run`: notes the budgets it is called with, and does what a
    test says for some.
    """

    toy = ("model=toy", "drafter=random")

    def __init__(self) -> None:
        self.budgets: list[int] = []
        self.special: dict[int, Work] = {}

    def __call__(self, config: Config, folder: RunFolder) -> None:
        self.budgets.append(config.tree.budget)
        self.special.get(config.tree.budget, lambda config, folder: folder.done())(config, folder)

    def fail(self, budget: int, error: BaseException) -> None:
        """Let the run with this budget raise."""

        def work(config: Config, folder: RunFolder) -> None:
            raise error

        self.special[budget] = work

    def code(self, arguments: list[str]) -> int:
        """The exit status of the command line, in this process."""
        try:
            return main(arguments)
        except SystemExit as stop:
            return int(stop.code or 0)


def states_of(sweep: str) -> dict[str, int]:
    """How many run folders of a sweep are in which state."""
    found: dict[str, int] = {}
    for status in Path("multirun", sweep).glob("*/status.json"):
        state = Run(status.parent).state
        found[state] = found.get(state, 0) + 1
    return found


@pytest.fixture
def states() -> Callable[[str], dict[str, int]]:
    return states_of


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Another Python in a folder: `python(folder, *arguments)`."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    import dartree_exp.report

    fake = types.ModuleType("dartree_exp.run")
    fake.run = Runs()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dartree_exp.run", fake)
    monkeypatch.setattr(
        dartree_exp.report, "comparison", lambda f, console, output: print(f"compared {len(f)}")
    )
    monkeypatch.chdir(tmp_path)
    return fake.run
