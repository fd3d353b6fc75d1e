"""What `--help` of the training commands says."""

import importlib
import re

import pytest
from test_command import WRITERS


@pytest.mark.parametrize("name", WRITERS)
def test_help_says_what_the_command_is_for(name, capsys):
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(f"dartree_exp.training.{name}").main(["--help"])
    assert stop.value.code == 0
    module = importlib.import_module(f"dartree_exp.training.{name}")
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(module.__doc__.split()) in said and f"dartree_exp.training.{name}" in said


@pytest.mark.parametrize("name", WRITERS)
def test_help_says_what_every_option_takes_and_the_example_uses_real_ones(name, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"dartree_exp.training.{name}").main(["--help"])
    options, example = capsys.readouterr().out.partition("options:")[2].split("example:")
    entries = re.split(r"\n  (?=--)", options)[1:]
    assert len(entries) > 3
    for entry in entries:
        assert re.search(r"\[.+; (required|default.+)\]", " ".join(entry.split())), entry
    names = {entry.split()[0] for entry in entries}
    assert set(re.findall(r"--\S+", example)) <= names
    required = {entry.split()[0] for entry in entries if "; required]" in " ".join(entry.split())}
    assert required <= set(re.findall(r"--\S+", example))
