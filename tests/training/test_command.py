"""Training commands: what they write, and what they say to mistakes."""

import importlib

import pytest

import dartree_exp
from dartree_exp.training import command

PACKAGE = command.PACKAGE
WRITERS = {
    "generate": ["--prompts", "p", "--out"],
    "capture": ["--data", "d", "--out"],
    "train": ["--data", "d", "--features", "f", "--steps", "1", "--out"],
    "export": ["--run", "r", "--data", "d", "--out"],
    "validate": ["--drafter", "d", "--features", "f", "--out"],
    "tau": ["--drafter", "d", "--data", "d", "--out"],
    "card": ["--drafter", "d", "--out"],
    "calibrate": ["--drafter", "d", "--data", "d", "--out"],
}


def outcome(name, arguments, capsys):
    """(exit status, stderr) of a command."""
    main = importlib.import_module(f"dartree_exp.training.{name}").main
    try:
        code = command.run(main, [str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_into_the_package(name, capsys):
    place = PACKAGE / "drafters" / "weights" / "new.json"
    code, said = outcome(name, [*WRITERS[name], place], capsys)
    assert code == 2 and said.count("\n") == 1
    assert "lies in the installed package, which is not written to" in said
    assert not place.exists()


def test_the_package_is_the_imported_one():
    assert (PACKAGE / "__init__.py").samefile(dartree_exp.__file__)


def test_a_calibration_is_told_where_to_write(capsys):
    code, said = outcome("calibrate", ["--drafter", "d", "--data", "d"], capsys)
    assert code == 2 and "required: --out" in said
    weights = PACKAGE / "drafters" / "weights" / "smollm2_135m_markov"
    command_line = ["--drafter", weights, "--data", "d", "--diagram", weights / "x.png", "--out", "t.json"]
    assert "lies in the installed package" in outcome("calibrate", command_line, capsys)[1]
