"""Medusa heads: which token each predicts, the released layout, the converter, refusals."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters.medusa import convert
from dartree_exp.drafters.medusa.checkpoint import (
    PICKLED,
    WEIGHTS,
    load,
    read_heads,
    save_heads,
)
from dartree_exp.drafters.medusa.config import MedusaConfig, read_config
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.drafters.medusa.session import MedusaDrafter
from dartree_exp.drafters.unpickle import main
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

H, V, HEADS = 32, 64, 3
PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]
RULE = StopRule(20)
# As released, for Vicuna: fewer heads are stated than stored.
RELEASED = {
    "base_model_name_or_path": "lmsys/vicuna-7b-v1.3",
    "medusa_num_heads": 2,
    "medusa_num_layers": 1,
    "transformers_version": "4.31.0",
}


def released_tensors(heads: int = HEADS, layers: int = 1) -> dict[str, torch.Tensor]:
    """Names and shapes of a released file; a head's blocks are one block in it."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for i in range(heads):
        block = 0.1 * torch.randn(H, H, generator=generator)
        bias = 0.1 * torch.randn(H, generator=generator)
        for j in range(layers):
            found |= {f"{i}.{j}.linear.weight": block, f"{i}.{j}.linear.bias": bias}
        found[f"{i}.{layers}.weight"] = torch.randn(V, H, generator=generator)
    return found


def write(folder: Path, tensors: dict[str, torch.Tensor], **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({name: value.clone() for name, value in tensors.items()}, folder / WEIGHTS)
    (folder / "config.json").write_text(json.dumps(RELEASED | config))
    return folder


def perfect(target, shift: int = 0) -> MedusaDrafter:
    """Heads that were fitted to one greedy answer: head i of position t says the token at
    t + 2 + i, or another by `shift`.
    """
    text = [*PROMPT, *autoregress(target, PROMPT, Sampler(), RULE, StageClock()).ids]
    hidden = target.prefill(text, target.new_cache(len(text))).hidden[len(PROMPT) - 1 :]
    heads = MedusaHeads(MedusaConfig(HEADS), H, V).to(target.dtype)
    for i, head in enumerate(heads.each()):
        ahead = range(len(PROMPT) + 1 + i + shift, len(text))
        read = hidden[: len(ahead)]
        wanted = 30.0 * torch.nn.functional.one_hot(torch.tensor([text[a] for a in ahead]), V)
        head[1].weight.data = torch.linalg.lstsq(read, wanted.to(read.dtype)).solution.T
    return MedusaDrafter("perfect", target, heads.requires_grad_(False))


@pytest.mark.parametrize("tree", ["chain", "heap", "static"])
def test_perfect_heads_are_accepted_whole(tree: str) -> None:
    """The hidden state of position t gave the root at t + 1; head i says the token at t + 2 + i."""
    target = toy_target(dtype=torch.float64, seed=1, layers=2)
    config = compose(["model=toy", f"tree={tree}", "drafter=medusa", "tree.budget=12"])

    def advanced(drafter: MedusaDrafter) -> list[int]:
        method = make_method(config.tree, config.budget, drafter)
        answer = speculate(target, method, PROMPT, Sampler(), RULE, StageClock())
        assert answer.ids == autoregress(target, PROMPT, Sampler(), RULE, StageClock()).ids
        return [r.tokens_advanced for r in answer.rounds]

    assert set(advanced(perfect(target))[:-1]) == {HEADS + 1}
    for shift in (-1, 1):  # controls
        assert max(advanced(perfect(target, shift))) < HEADS + 1


def test_a_head_is_blocks_and_a_projection() -> None:
    heads = MedusaHeads(MedusaConfig(2, 2), H, V).double()
    for weight in heads.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    x = torch.randn(5, H, dtype=torch.float64)
    read = heads(x)
    assert read.shape == (5, 2, H)
    for i, (first, second, last) in enumerate(heads.each()):
        y = x
        for block in (first, second):
            z = y @ block.linear.weight.T + block.linear.bias
            y = y + z * z.sigmoid()
        torch.testing.assert_close(read[:, i], y)
        assert heads.projections()[i] is last.weight


def test_new_heads_predict_what_the_target_does() -> None:
    target = toy_target()
    heads = MedusaHeads(MedusaConfig(HEADS, 1, True), H, V)
    assert heads.projections() == []
    hidden = torch.randn(1, H)
    block = MedusaDrafter("new", target, heads).block(hidden)
    expected = hidden @ target.lm_head_weight.T
    torch.testing.assert_close(block.logits, expected.expand(1, HEADS, V))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_released_layout_is_read(tmp_path: Path, layers: int) -> None:
    """Each stored head is read, although the released config states fewer."""
    tensors = released_tensors(layers=layers)
    folder = write(tmp_path / "m", tensors, medusa_num_layers=layers)
    heads = read_heads(folder, H, V)
    assert len(heads) == HEADS > read_config(folder).medusa_num_heads
    for name, value in heads.state_dict().items():
        assert torch.equal(value, tensors[name])
    config = compose(["model=toy", "drafter=medusa", f"drafter.path={folder}"])
    drafter = load(config.drafter, toy_target())
    assert drafter.num_drafts == HEADS and drafter.weights_sha256


def test_written_and_read_again(tmp_path: Path) -> None:
    config = MedusaConfig(2, 1, True, "someone/model")
    heads = MedusaHeads(config, H, V)
    for weight in heads.parameters():
        torch.nn.init.normal_(weight)
    save_heads(tmp_path / "m", heads, config, torch.bfloat16)
    assert read_config(tmp_path / "m") == config
    again = read_heads(tmp_path / "m", H, V)
    x = torch.randn(3, H).bfloat16()
    assert torch.equal(again(x), heads.bfloat16()(x))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"medusa_num_heads": 4}, r"missing tensors 3\.0\.linear\.bias"),
        ({"medusa_num_layers": 2}, r"missing tensors 0\.1\.linear\.bias"),
        ({"medusa_num_heads": None}, "medusa_num_heads: missing from config.json"),
        ({"medusa_num_heads": 0}, "medusa_num_heads = 0: must be at least 1"),
        ({"medusa_num_layers": "1"}, "medusa_num_layers = '1': must be an integer"),
        ({"medusa_shared_lm_head": True}, r"unexpected tensors 0\.1\.weight"),
        ({"base_model_name_or_path": 3}, "base_model_name_or_path = 3: must be a string"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_heads(write(tmp_path / "m", released_tensors(), **change), H, V)


def test_heads_of_another_target_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", released_tensors())
    with pytest.raises(CheckpointError, match=r"0\.1\.weight is \[64, 32\], expected \[65, 32\]"):
        read_heads(folder, H, V + 1)


def test_a_pickle_is_only_read_by_the_converter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out, tensors = tmp_path / "pickled", tmp_path / "out", released_tensors(layers=2)
    folder.mkdir()
    torch.save(tensors, folder / PICKLED)
    (folder / "config.json").write_text(json.dumps(RELEASED | {"medusa_num_layers": 2}))
    with pytest.raises(CheckpointError, match=r"is a pickle.*medusa\.convert .*pickled OUT"):
        read_heads(folder, H, V)
    run = convert.__name__, PICKLED, WEIGHTS
    assert main([str(folder), str(out)], *run) == 0
    written = load_file(out / WEIGHTS)
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], value) for name, value in tensors.items())
    assert len(read_heads(out, H, V)) == HEADS
    assert main([str(folder), str(out)], *run) == 2
    assert "exists already" in capsys.readouterr().err


class Runs:
    """A pickle that would run code."""

    def __reduce__(self):
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize("content", [{"0.0.linear.weight": Runs()}, [1, 2], b"nothing"])
def test_the_converter_runs_no_code(
    tmp_path: Path,
    content: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        (tmp_path / PICKLED).write_bytes(content)
    else:
        torch.save(content, tmp_path / PICKLED)
    (tmp_path / "config.json").write_text(json.dumps(RELEASED))
    assert main([str(tmp_path), str(tmp_path / "out")], convert.__name__, PICKLED, WEIGHTS) == 2
    said = capsys.readouterr().err
    assert said.startswith("convert: ") and PICKLED in said and said.count("\n") == 1
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()
    if isinstance(content, dict):  # control: loading it as a pickle would
        pickle.loads(pickle.dumps(content))
        assert (tmp_path / "ran").exists()
