"""Scripted drafters on the toy target, and the choice of a drafter by configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dartree_exp.config import compose
from dartree_exp.config.method_schema import DrafterConfig
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.dflash.checkpoint import save_drafter
from dartree_exp.drafters.dflash.config import CheckpointError
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.errors import ConfigError
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler

PROMPT = [0, 9, 23, 40, 11]


@pytest.fixture(scope="module")
def target():
    return toy_target("llama", torch.float64)


def plain(target, sampler: Sampler, count: int) -> list[int]:
    cache = target.new_cache(len(PROMPT) + count)
    ids = [sampler.choose(target.prefill(PROMPT, cache).logits[-1], len(PROMPT))]
    while len(ids) < count:
        ids.append(sampler.choose(target.step(ids[-1], cache), len(PROMPT) + len(ids)))
    return ids


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0, seed=3, sample_id="a")])
def test_oracle_proposes_what_the_target_emits(target, sampler: Sampler):
    ids = plain(target, sampler, 14)
    session = ScriptedDrafter("oracle", target, 4).session(PROMPT, sampler)
    for n in (0, 3, 9):
        block = session.propose(None, ids[n], len(PROMPT) + n)
        assert block.logits.argmax(-1).tolist() == ids[n + 1 : n + 5]
        assert block.logits.shape == (4, target.vocab_size) and block.logits.dtype == torch.float32
        assert block.logits.isfinite().all() and block.hidden.shape == (4, target.hidden_size)


def test_draws_differ_from_greedy_text(target):
    assert plain(target, Sampler(), 14) != plain(
        target, Sampler(temperature=1.0, seed=3, sample_id="a"), 14
    )


def test_adversarial_ranks_the_target_last(target):
    ids = plain(target, Sampler(), 8)
    block = (
        ScriptedDrafter("adversarial", target, 5)
        .session(PROMPT)
        .propose(None, ids[1], len(PROMPT) + 1)
    )
    assert block.logits.argmin(-1).tolist() == ids[2:7]


def test_random_depends_on_seed_prompt_and_position_only(target):
    def logits(
        seed: int = 0, prompt: list[int] = PROMPT, start: int = 7, root: int = 3
    ) -> torch.Tensor:
        return (
            ScriptedDrafter("random", target, 4, seed)
            .session(prompt)
            .propose(None, root, start)
            .logits
        )

    same = logits()
    assert torch.equal(same, logits()) and torch.equal(same, logits(root=8))
    for other in (logits(seed=1), logits(prompt=[0, 9]), logits(start=8)):
        assert not torch.equal(same, other)
    assert not torch.equal(same[0], same[1])


def test_oracle_ends_quietly_at_the_targets_range():
    short = toy_target(max_positions=12)
    session = ScriptedDrafter("oracle", short, 6).session(PROMPT)
    logits = session.propose(None, 4, 9).logits
    assert (logits.amax(-1) > 20).tolist() == [True, True, True, False, False, False]


def config(**changes) -> DrafterConfig:
    values = {"name": "random", "path": None, "head": "none", "num_drafts": None, **changes}
    kind = "scripted" if values["name"] in FAMILIES["scripted"].kinds else "dflash"
    return replace(compose(["model=toy"]).drafter, family=kind, **values)


@pytest.mark.parametrize("name", ["oracle", "random", "adversarial"])
def test_scripted_drafters_by_name(target, name: str):
    drafter = load_drafter(config(name=name, num_drafts=3), target)
    assert (drafter.name, drafter.num_drafts, drafter.head, drafter.target_layer_ids) == (
        name,
        3,
        None,
        (),
    )
    assert drafter.weights_sha256 is None and drafter.max_positions == target.max_positions
    with pytest.raises(ConfigError, match=r"drafter\.num_drafts = null"):
        load_drafter(config(name=name), target)


def test_checkpoints_by_folder(make_parts: Callable, tmp_path: Path):
    backbone, head, stub = make_parts()
    save_drafter(tmp_path / "d", backbone, head)
    domino = load_drafter(config(name="domino", head="gru", path=str(tmp_path / "d")), stub)
    dflash = load_drafter(config(name="dflash", path=str(tmp_path / "d")), stub)
    assert domino.name == "domino" and domino.head is not None
    assert dflash.name == "dflash" and dflash.head is None
    with pytest.raises(ConfigError, match=r"drafter\.num_drafts = 4"):
        load_drafter(config(name="dflash", path=str(tmp_path / "d"), num_drafts=4), stub)
    save_drafter(tmp_path / "bare", backbone)
    with pytest.raises(ConfigError, match=r"drafter\.head=gru.*no correction head"):
        load_drafter(config(name="domino", head="gru", path=str(tmp_path / "bare")), stub)


def test_checkpoints_shipped_with_a_package(make_parts: Callable, tmp_path: Path, monkeypatch):
    backbone, head, stub = make_parts()
    package = tmp_path / "pretend_weights"
    save_drafter(package / "inner" / "d", backbone, head)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        load_drafter(
            config(name="domino", head="gru", path="pkg://pretend_weights/inner/d"), stub
        ).head
        is not None
    )
    with pytest.raises(CheckpointError, match="no such folder in the installed package"):
        load_drafter(config(name="domino", path="pkg://pretend_weights/inner/e"), stub)
    with pytest.raises(CheckpointError, match="no package pretend_nothing"):
        load_drafter(config(name="domino", path="pkg://pretend_nothing/e"), stub)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, r"drafter\.path = null: model stub has no domino drafter"),
        ("./nowhere", "no such folder, and not a hub name"),
        ("a/b/c", "no such folder, and not a hub name"),
        ("nobody/nothing", "not available from the hub"),
    ],
)
def test_absent_checkpoints_are_explained(make_parts: Callable, path: str | None, message: str):
    with pytest.raises((ConfigError, CheckpointError), match=message):
        load_drafter(config(name="domino", path=path), make_parts()[2])


def test_configuration_code_imports_drafters_without_torch():
    code = (
        "import sys, dartree_exp.drafters, dartree_exp.drafters.dflash.config; sys.exit('torch' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
