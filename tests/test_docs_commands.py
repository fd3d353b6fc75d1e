"""Commands in the documentation: those marked `bash run` work on the toy target, all others name real settings."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from dartree_exp import watch
from dartree_exp.__main__ import main
from dartree_exp.config.composition import first_mistake, normalise
from dartree_exp.report import __main__ as report

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALL = ["decoding.max_new_tokens=8", "engine.dtype=fp32", "engine.threads=1"]
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "dartree_exp": main,
    "dartree_exp.report": report.main,
    "dartree_exp.watch": watch.main,
}


def commands(page: Path, mark: str) -> list[list[str]]:
    """The words of each command in the page's blocks of this kind."""
    blocks = re.findall(rf"^```{mark}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [words for block in blocks for line in block.splitlines() if (words := shlex.split(line, comments=True))]


RUNNABLE = [page for page in PAGES if commands(page, "bash run")]


def test_the_pages_on_running_and_sweeping_are_run() -> None:
    assert {page.name for page in RUNNABLE} >= {"running.md", "sweeps.md"}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_marked_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    toy = ["model=toy", *SMALL]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    for words in commands(page, "bash run"):
        assert words[:2] == ["python", "-m"] and words[2] in PROGRAMS, words
        arguments = words[3:] + (toy if words[2] == "dartree_exp" and "--help" not in words else [])
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
        if "dartree_exp" not in words or "--config-dir" in words:  # options of the reader's own are in no schema
            continue
        overrides = [word for word in words[words.index("dartree_exp") + 1 :] if "=" in word and word[0] != "-"]
        assert first_mistake(normalise(overrides)) is None, words
        for word in overrides:
            group, _, option = word.partition("=")
            if group in ("hydra/launcher", "hydra/sweeper"):
                assert (ROOT / "conf" / group / f"{option}.yaml").is_file(), word
