"""Checkpoint folders: round trip, and every reason to refuse one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_support import edit_config, edit_tensors
from safetensors.torch import load_file, save_file

from dartree_exp.drafters.dflash.checkpoint import load_drafter, read_checkpoint, save_drafter
from dartree_exp.drafters.dflash.config import (
    CheckpointError,
    read_config,
)


@pytest.mark.parametrize(
    "changes", [{}, {"shift_label": False, "pure_draft_prefix_len": 0}, {"head": None}]
)
@pytest.mark.parametrize("vocab_ids", [None, torch.tensor([2, 3, 17])])
def test_round_trip(
    make_parts: Callable, tmp_path: Path, changes: dict[str, Any], vocab_ids: torch.Tensor | None
):
    backbone, head, _ = make_parts(**changes)
    save_drafter(tmp_path / "d", backbone, head, vocab_ids)
    stored = read_checkpoint(tmp_path / "d")
    parts = [(backbone, stored.backbone)] + ([] if head is None else [(head, stored.head)])
    for ours, theirs in parts:
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        assert all(
            torch.equal(value, theirs.state_dict()[key]) for key, value in ours.state_dict().items()
        )
    assert (stored.head is None) == (head is None)
    assert stored.config.shift_label is backbone.config.shift_label
    assert stored.config.head == (None if head is None else head.config())
    assert stored.config.target_layer_ids == backbone.config.target_layer_ids
    if vocab_ids is None:
        assert stored.vocab_ids is None
    else:
        assert (
            stored.vocab_ids.tolist() == vocab_ids.tolist() and stored.config.draft_vocab_size == 3
        )


def test_saved_config_states_the_layout_under_both_names(saved: Callable):
    folder, _ = saved()
    raw = json.loads((folder / "config.json").read_text())
    assert raw["sample_from_anchor"] is True and raw["dflash_config"]["shift_label"] is True
    assert raw["architectures"] == ["DFlashDraftModel"] and raw["dtype"] == "float32"
    assert [f.name for f in sorted(folder.iterdir())] == ["config.json", "model.safetensors"]


def test_saved_dtype(make_parts: Callable, tmp_path: Path):
    backbone, head, _ = make_parts()
    save_drafter(tmp_path / "d", backbone, head, torch.tensor([1]), dtype=torch.bfloat16)
    tensors = load_file(tmp_path / "d" / "model.safetensors")
    assert {value.dtype for key, value in tensors.items() if key != "t2d"} == {torch.bfloat16}
    assert tensors["t2d"].dtype == torch.bool and tensors["t2d"].sum() == 1


def test_loading_leaves_the_random_state_alone(saved: Callable):
    folder, _ = saved()
    before = torch.get_rng_state()
    read_checkpoint(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_missing_tensor_is_named(saved: Callable):
    folder, target = saved()
    edit_tensors(folder, lambda t: t.pop("layers.1.mlp.up_proj.weight"))
    with pytest.raises(
        CheckpointError, match=r"missing tensors layers\.1\.mlp\.up_proj\.weight \("
    ):
        load_drafter(folder, target)


def test_missing_head_is_an_error_even_when_the_head_is_not_used(saved: Callable):
    folder, target = saved()
    edit_tensors(folder, lambda t: t.pop("prefix_gru.weight_ih_l0"))
    with pytest.raises(CheckpointError, match=r"missing tensors prefix_gru\.weight_ih_l0"):
        load_drafter(folder, target, use_head=False)


def test_unexpected_tensor_is_named(saved: Callable):
    folder, target = saved()
    edit_tensors(folder, lambda t: t.update({"layers.2.self_attn.q_norm.weight": torch.ones(8)}))
    with pytest.raises(
        CheckpointError, match=r"unexpected tensors layers\.2\.self_attn\.q_norm\.weight"
    ):
        load_drafter(folder, target)


def test_head_tensors_without_a_head_in_the_config_are_named(saved: Callable):
    folder, target = saved()
    edit_config(folder, lambda c: c["dflash_config"].pop("projector_type"))
    with pytest.raises(
        CheckpointError, match=r"unexpected tensors embed_proj\.0\.weight, .*prefix_gru"
    ):
        load_drafter(folder, target)


def test_wrong_shape_is_named(saved: Callable):
    folder, target = saved()
    edit_tensors(folder, lambda t: t.update({"fc.weight": torch.ones(32, 96)}))
    with pytest.raises(
        CheckpointError, match=r"tensor fc\.weight is \[32, 96\], expected \[32, 64\]"
    ):
        load_drafter(folder, target)


def test_legacy_prefix_is_read(saved: Callable):
    folder, target = saved()
    plain = load_drafter(folder, target).head.state_dict()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for key in [k for k in tensors if k.startswith(("prefix_gru", "embed_proj"))]:
            tensors[f"logit_head.{key}"] = tensors.pop(key)

    edit_tensors(folder, rename)
    renamed = load_drafter(folder, target).head.state_dict()
    assert plain.keys() == renamed.keys() and all(torch.equal(plain[k], renamed[k]) for k in plain)
    edit_tensors(folder, lambda t: t.update({"embed_proj.2.weight": torch.zeros(40, 10)}))
    with pytest.raises(CheckpointError, match=r"embed_proj\.2\.weight is stored twice"):
        load_drafter(folder, target)


def test_sharded_weights_are_read(saved: Callable):
    folder, target = saved()
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    shards = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, keys in shards.items():
        save_file({k: whole[k] for k in keys}, folder / file)
    weight_map = {key: file for file, keys in shards.items() for key in keys}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    state = load_drafter(folder, target).backbone.state_dict()
    assert all(torch.equal(value, whole[key]) for key, value in state.items())


def test_pickled_weights_are_refused_unread(saved: Callable):
    folder, target = saved()
    (folder / "model.safetensors").unlink()

    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("a pickle was loaded",))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match=r"neither model.safetensors nor"):
        load_drafter(folder, target)


def test_truncated_weights_are_refused(saved: Callable):
    folder, target = saved()
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load_drafter(folder, target)


def test_unreadable_folders_are_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no readable config.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "hidden_size = 64, allowed: 32"),
        ({"vocab_size": 48}, "vocab_size = 48, allowed: 40"),
        ({"num_target_layers": 6}, "num_target_layers = 6, allowed: 4"),
    ],
)
def test_a_drafter_of_another_target_is_refused(
    saved: Callable, make_parts: Callable, changes: dict[str, Any], message: str
):
    folder, _ = saved(**changes)
    _, _, target = make_parts()
    with pytest.raises(CheckpointError, match=f"does not fit target stub: {message}"):
        load_drafter(folder, target)
