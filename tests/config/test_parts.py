"""A tree and a head from a user's folder, added with only a spec and YAML."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dartree_exp
from dartree_exp.__main__ import main
from dartree_exp.config.methods import known_methods
from dartree_exp.config.parts import KINDS, add_parts
from dartree_exp.drafters.dflash.checkpoint import save_drafter
from dartree_exp.drafters.dflash.toy import toy_drafter
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.models.toy import toy_target
from dartree_exp.records.reader import Run, find_runs
from dartree_exp.verify.spec import VERIFIERS

SOURCE = Path(dartree_exp.__file__).parent
LAB = Path(__file__).with_name("lab")
WITH_LAB = ["--config-dir", str(LAB / "conf"), "parts=[lab_parts]"]
SMALL = [
    "model=toy",
    "engine.dtype=fp32",
    "engine.threads=1",
    "benchmark.limit=1",
    "decoding.max_new_tokens=8",
]


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The lab's modules on the path and an empty working folder; removes its parts afterwards."""
    before = [dict(parts) for parts in KINDS.values()]
    monkeypatch.syspath_prepend(str(LAB))
    monkeypatch.chdir(tmp_path)
    yield
    for parts, names in zip(KINDS.values(), before, strict=True):
        parts.clear()
        parts.update(names)


def run(*arguments: str) -> tuple[int, list[Run]]:
    try:
        status = main([*WITH_LAB, *SMALL, *arguments])
    except SystemExit as stop:  # a single run ends the process
        status = int(stop.code or 0)
    return status, list(find_runs(Path()))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (["tree.budget=8", "tree=tapered", "drafter=domino"], "domino+tapered(conditional)"),
        (["tree.budget=8", "tree=tapered", "drafter=dflash"], "dflash+tapered(marginal)"),
        (["tree.budget=8", "tree=heap", "drafter=lab"], "lab+heap(conditional)"),
        (["method=lab_tree"], "lab_tree"),
        (["tree=tapered", "drafter=lab", "tree.budget=9"], "lab_tree"),
        (["method=lab_tree", "tree.normalise=vocab"], "lab+tapered(conditional)"),
    ],
)
def test_they_run_under_their_names(settings: list[str], name: str) -> None:
    status, [made] = run(*settings)
    assert status == 0 and [sample.verdict for sample in made.samples] == ["exact"]
    assert json.loads((made.path / "summary.json").read_text())["method"] == name
    assert all(round_.tree_size for round_ in made.rounds)


def test_a_sweep_mixes_them_with_the_packages_own() -> None:
    status, made = run("-m", "tree=tapered,pruned", "drafter=lab,domino", "tree.width=4")
    assert status == 0 and len(made) == 4 and {run.state for run in made} == {"DONE"}


def test_every_kind_of_part_can_come_from_outside() -> None:
    chosen = ["tree.scoring=mine", "budget.name=half", "verify.name=first", "engine.name=plain"]
    status, [made] = run("tree=tapered", "drafter=lab", "tree.budget=8", *chosen)
    assert status == 0 and made.state == "DONE"
    assert {round_.tree_size for round_ in made.rounds} == {4}
    summary = json.loads((made.path / "summary.json").read_text())
    assert summary["method"] == "lab+tapered(mine)+half+first"


@pytest.mark.slow
def test_a_launchers_workers_know_them(tmp_path: Path) -> None:
    shutil.copytree(LAB, tmp_path / "mine")
    command = [sys.executable, "-m", "dartree_exp", "-m", "tree=tapered,heap", "drafter=lab"]
    subprocess.run(
        [*command, "--config-dir", "conf", *WITH_LAB[2:], *SMALL, "hydra/launcher=cores"],
        cwd=tmp_path / "mine",
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert [made.state for made in find_runs(tmp_path / "mine")] == ["DONE", "DONE"]


def test_a_checkpoint_with_the_head_is_read(tmp_path: Path) -> None:
    add_parts(["lab_parts"])
    made = toy_drafter(toy_target(dtype=torch.float32), "tanh", 0, "lab")
    save_drafter(tmp_path / "weights", made.backbone, made.head)
    status, [done] = run("method=lab_tree", f"drafter.path={tmp_path / 'weights'}")
    assert status == 0 and done.state == "DONE"
    status, _ = run("drafter=dspark", f"drafter.path={tmp_path / 'weights'}")
    assert status == 2


def test_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WITH_LAB, "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    for text in (
        "tree.name=tapered",
        "each half as wide as the one above",
        "drafter.head=tanh",
        "squashed Markov head (lab)",
        "A published method of the lab's. [budget, depth, candidates]",
        "[true or false; read by heap, fixed, pruned, tapered]",
        "one of chain, heap, sampled, fixed, pruned, pool, frontier, static, tapered",
    ):
        assert text in page
    assert main(["--help"]) == 0  # the page without parts= has every part


def test_settings_not_read_by_the_tree_are_reported_and_not_hashed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, [first] = run("tree=tapered", "drafter=lab")
    assert "note" not in capsys.readouterr().err
    _, [again] = run("tree=tapered", "drafter=lab", "tree.beta=-0.7")
    assert "note: tree=tapered does not read tree.beta" in capsys.readouterr().err
    assert first.path == again.path


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ("[no_such_module]", "parts=[no_such_module]: cannot be imported"),
        ("[json]", "parts=[json]: must declare PARTS, a list of DrafterSpec, HeadSpec, TreeSpec"),
        ("lab_parts", "parts=lab_parts: must be a list of strings"),
        ("[twice]", "parts=[twice]: tree.name=chain is declared already"),
        ("[broken]", "parts=[broken]: cannot be imported: ValueError: no"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--help"]])
def test_a_mistake_is_one_line(
    modules: str,
    said: str,
    more: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "twice.py").write_text(
        "from dartree_exp.trees.spec import TreeSpec\n"
        "PARTS = [TreeSpec(name='chain', target='twice:Chain', meaning='another')]\n"
    )
    (tmp_path / "broken.py").write_text("raise ValueError('no')\n")
    try:
        status = main([f"parts={modules}", "model=toy", *more])
    except SystemExit as stop:
        status = int(stop.code or 0)
    [line] = capsys.readouterr().err.splitlines()
    assert status == 2 and said in line


def test_code_that_is_not_there_fails_the_run_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "absent.py").write_text(
        "from dartree_exp.trees.spec import TreeSpec\n"
        "PARTS = [TreeSpec(name='absent', target='absent:Tree', meaning='no code')]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "conf" / "tree").mkdir(parents=True)
    (tmp_path / "conf" / "tree" / "absent.yaml").write_text(
        "defaults:\n  - _shared\n  - _self_\n\nname: absent\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["--config-dir", "conf", "parts=[absent]", "tree=absent", *SMALL])
    line = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 1 and "absent: cannot import absent:Tree" in line


def test_every_spec_names_code_that_is_there() -> None:
    add_parts(["lab_parts"])
    for parts in KINDS.values():
        assert parts
        for spec in parts.values():
            assert callable(spec.load()), spec.name
    for verifier in VERIFIERS.values():
        assert verifier.load().exact == verifier.exact


def literals(tree: ast.AST) -> Iterator[set[str]]:
    """The strings of every tuple, list, set and mapping literal."""
    for node in ast.walk(tree):
        items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        yield {i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)}


def test_no_second_list_of_names() -> None:
    """No literal outside the specs has half of the names of a kind."""
    kinds = [set(parts) for parts in KINDS.values()] + [set(known_methods())]
    kinds += [set(spec.kinds) for spec in FAMILIES.values()]
    found = [
        (file.relative_to(SOURCE).as_posix(), names)
        for file in SOURCE.rglob("*.py")
        if file.name != "spec.py"
        for names in literals(ast.parse(file.read_text(encoding="utf-8")))
        for kind in kinds
        if len(kind) > 1 and len(kind & names) > max(1, len(kind) / 2 - 1)
    ]
    assert found == []
