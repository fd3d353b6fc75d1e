"""Documentation that runs: links resolve, tables name code that exists, examples are executed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
METHODS = [page for page in (ROOT / "docs/methods").glob("*.md") if page.stem != "README"]
SOURCE = re.compile(r"`([\w/]+\.py)`")


def missing_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    return [link for link in links if not (page.parent / link).exists()]


def missing_code(text: str) -> list[str]:
    """What the code column of a page's table names and the source does not have.

    In a cell, a file name is followed by names that are defined or used in it; `key=value` is a
    setting.
    """
    absent = []
    for row in re.findall(r"^\|(.+)\|$", text, flags=re.MULTILINE):
        source = None
        for name in re.findall(r"`([^`]+)`", row.split("|")[-1]):
            if SOURCE.fullmatch(f"`{name}`"):
                path = ROOT / "src/dartree_exp" / name
                source = path.read_text() if path.exists() else ""
            elif source is not None and "=" not in name:
                words = name.removeprefix("tree.").split(".")
                if not all(re.search(rf"\b{word}\b", source) for word in words):
                    absent.append(name)
    return absent


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert missing_links(page, page.read_text()) == []


@pytest.mark.parametrize("page", METHODS, ids=lambda page: page.stem)
def test_method_pages_name_code_that_exists(page):
    text = page.read_text()
    assert SOURCE.search(text), "a page must say where its symbols live"
    assert missing_code(text) == []


def test_every_method_has_a_page_that_names_its_preset():
    presets = {path.stem for path in (ROOT / "conf/method").glob("*.yaml")}
    text = "".join(page.read_text() for page in (ROOT / "docs/methods").glob("*.md"))
    assert [
        name for name in sorted(presets) if not re.search(rf"`\+?(method=)?{name}`", text)
    ] == []


def test_control_wrong_pages_are_caught():
    assert missing_links(
        ROOT / "docs/x.md", "[a](nowhere.md) [b](adding.md#a-tree) [c](https://x.org)"
    ) == ["nowhere.md"]
    assert missing_code(
        "| s | `trees/pool.py` `PoolBuilder.pull` |\n| t | `trees/gone.py` `Gone` |"
    ) == [
        "PoolBuilder.pull",
        "Gone",
    ]


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"```{language}\n(.*?)```", (ROOT / "docs/adding.md").read_text(), flags=re.DOTALL
    )


def test_the_python_of_adding_runs():
    namespace: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/adding.md", "exec"), namespace)


def test_the_commands_of_adding_run(tmp_path):
    (script,) = blocks("bash")
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "multirun").rglob("samples.jsonl"))) == 1
