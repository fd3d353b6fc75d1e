"""Commands in the documentation: those marked `bash run` work on the toy target, all others name
real settings.
"""

import importlib
import re
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dartree_exp import train
from dartree_exp.__main__ import main
from dartree_exp.config.composition import MAIN, Program, first_mistake, normalise
from dartree_exp.config.training import TrainConfig
from dartree_exp.report import __main__ as report
from dartree_exp.sweeps import watch
from dartree_exp.training import command
from tiny_folder import write_prompts, write_target

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALL = ["decoding.max_new_tokens=8", "engine.dtype=fp32", "engine.threads=1"]
TRAINING = {
    name: importlib.import_module(f"dartree_exp.training.{name}").main
    for name in ("generate", "capture", "export", "validate", "tau", "card", "edges")
}
SMALLER = {
    "generate": ["--cap", "12"],
    "tau": ["--cap", "6"],
    "edges": ["--cap", "6", "--temperatures", "0"],
}
FEW_STEPS = [f"training.{text}" for text in ("steps=3", "vocab=12", "rank=8", "gru_width=8")]
TRAIN = Program("train", TrainConfig)
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    **{
        f"dartree_exp.training.{name}": partial(command.run, main)
        for name, main in TRAINING.items()
    },
    "dartree_exp": main,
    "dartree_exp.train": partial(command.run, train.main),
    "dartree_exp.report": report.main,
    "dartree_exp.watch": watch.main,
}


def commands(page: Path, mark: str) -> list[list[str]]:
    """The words of each command in the page's blocks of this kind."""
    blocks = re.findall(
        rf"^```{mark}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [
        words
        for block in blocks
        for line in block.splitlines()
        if (words := shlex.split(line, comments=True))
    ]


def in_small(program: str, words: list[str], toy: list[str], target: Path) -> list[str]:
    """The command on the toy, or on the folder `target` where it trains; options given twice take
    the last value.
    """
    if program == "dartree_exp.train":
        return [*words, *FEW_STEPS, f"model.path={target}"]
    name = program.removeprefix("dartree_exp.training.")
    if name == "dartree_exp" and "--help" not in words:
        return [*words, *toy]
    if name not in TRAINING or name == "card":
        return words
    place = (
        ["--set", f"model.path={target}"] if name in ("tau", "edges") else ["--target", str(target)]
    )
    return [*words, *SMALLER.get(name, []), *place]


RUNNABLE = [page for page in PAGES if commands(page, "bash run")]


def test_the_pages_on_running_and_sweeping_are_run() -> None:
    assert {page.name for page in RUNNABLE} >= {"running.md", "sweeps.md", "training.md"}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_marked_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    toy, target = ["model=toy", *SMALL], tmp_path / "target"
    monkeypatch.chdir(tmp_path)
    if (
        page.name == "training.md"
    ):  # a drafter fits one target only: the last command decodes with that one
        toy = [f"model.path={write_target(target)}", *SMALL]
        write_prompts(tmp_path / "prompts.jsonl", 14)
        shutil.copy(ROOT / "src/dartree_exp/prompts/mini.jsonl", tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    for words in commands(page, "bash run"):
        assert words[:2] == ["python", "-m"] and words[2] in PROGRAMS, words
        arguments = in_small(words[2], words[3:], toy, target)
        try:
            code = PROGRAMS[words[2]](arguments)
        except SystemExit as stop:  # a single run ends the process
            code = int(stop.code or 0)
        out = capsys.readouterr()
        assert code == 0, (words, out)
        assert "stopped at" not in out.err, out.err  # a tracker that failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_real_settings(page: Path) -> None:
    for words in commands(page, "bash(?: run)?"):
        name = next((name for name in ("dartree_exp", "dartree_exp.train") if name in words), None)
        if name is None or "--config-dir" in words:  # the reader's own options are in no schema
            continue
        program = TRAIN if name == "dartree_exp.train" else MAIN
        overrides = [
            word for word in words[words.index(name) + 1 :] if "=" in word and word[0] != "-"
        ]
        overrides = normalise(overrides, program=program)
        assert first_mistake(overrides, program=program) is None, words
        for word in overrides:
            group, _, option = word.partition("=")
            if group in ("hydra/launcher", "hydra/sweeper"):
                assert (ROOT / "conf" / group / f"{option}.yaml").is_file(), word
