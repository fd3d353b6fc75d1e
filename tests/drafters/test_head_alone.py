"""Folders with only a head, next to the backbone that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_support import edit_tensors
from safetensors.torch import load_file

from dartree_exp.drafters.dflash.checkpoint import (
    load_drafter,
    save_head,
)
from dartree_exp.drafters.dflash.config import CheckpointError, read_config
from dartree_exp.drafters.heads.calibration import CALIBRATION, write_temperatures
from markov_heads import MARKOV_HEADS

H, V, RANK = 32, 40, 6  # of the fixture `head_alone`


@pytest.mark.parametrize("head_type", ["vanilla", "gated", "rnn"])
def test_a_folder_with_only_a_head_drafts_with_its_sibling_backbone(
    head_alone: Callable, head_type: str
):
    folder, shared, target = head_alone(head_type, torch.tensor([2, 3, 17, 30]))
    assert all(
        key.startswith(("markov_head.", "confidence_head."))
        for key in load_file(folder / "model.safetensors")
    )
    alone, domino = load_drafter(folder, target), load_drafter(shared, target)
    assert type(alone.head) is MARKOV_HEADS[head_type] and alone.confidence is not None
    assert alone.vocab_ids.tolist() == domino.vocab_ids.tolist() == [2, 3, 17, 30]
    blocks = [drafter.session([]).propose(torch.ones(4, 64), 7, 4) for drafter in (alone, domino)]
    assert torch.equal(blocks[0].logits, blocks[1].logits)
    assert alone.weights_sha256 not in (None, domino.weights_sha256)
    assert read_config(folder).head.kind == {"vanilla": "markov"}.get(
        head_type, f"markov_{head_type}"
    )


def test_another_backbone_is_refused_by_its_content(head_alone: Callable):
    folder, shared, target = head_alone()
    edit_tensors(shared, lambda t: t["norm.weight"].add_(1e-3))
    with pytest.raises(
        CheckpointError,
        match=r"alone: .*shared/model\.safetensors is not the backbone .*sha256 .*, expected",
    ):
        load_drafter(folder, target)


def test_a_missing_backbone_is_named(head_alone: Callable):
    folder, shared, target = head_alone()
    shared.rename(shared.with_name("elsewhere"))
    with pytest.raises(CheckpointError, match=r"backbone\.folder = shared: no such folder"):
        load_drafter(folder, target)


@pytest.mark.parametrize("name", ["../shared", "a/b", "", 3])
def test_a_backbone_is_a_plain_sibling_name(head_alone: Callable, name: Any):
    folder, _, target = head_alone()
    raw = json.loads((folder / "config.json").read_text())
    raw["backbone"]["folder"] = name
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match="a name without slashes"):
        load_drafter(folder, target)


def test_a_folder_with_only_a_head_has_no_other_tensors(head_alone: Callable):
    folder, _, target = head_alone()
    edit_tensors(folder, lambda t: t.update({"norm.weight": torch.ones(H)}))
    with pytest.raises(CheckpointError, match=r"alone: unexpected tensors norm\.weight"):
        load_drafter(folder, target)


def test_a_head_is_saved_only_next_to_its_backbone(head_alone: Callable, tmp_path: Path):
    _, shared, _ = head_alone()
    with pytest.raises(CheckpointError, match="must be next to its backbone"):
        save_head(tmp_path / "deep" / "alone", shared, MARKOV_HEADS["vanilla"](H, V, RANK))
    with pytest.raises(CheckpointError, match=r"markov_w1\.weight is \[41, 6\]"):
        save_head(tmp_path / "other", shared, MARKOV_HEADS["vanilla"](H, V + 1, RANK))


def test_temperatures_are_read_and_belong_to_the_weights(head_alone: Callable):
    folder, _, target = head_alone()
    write_temperatures(
        folder / CALIBRATION, folder, [1.0, 2.0, 0.5, 1.0, 1.0, 4.0], {"how": "by hand"}
    )
    drafter = load_drafter(folder, target)
    confidence, hidden, tokens = drafter.confidence, torch.randn(3, H), torch.tensor([1, 2, 3])
    logits = confidence(hidden, tokens)
    assert torch.allclose(
        confidence.probability(hidden, tokens, torch.tensor([1, 2, 6])),
        torch.sigmoid(logits / torch.tensor([1.0, 2.0, 4.0])),
    )
    write_temperatures(folder / CALIBRATION, folder, [1.0, 2.0], {})
    with pytest.raises(CheckpointError, match="temperatures must be 6 positive numbers"):
        load_drafter(folder, target)
    write_temperatures(folder / CALIBRATION, folder, [1.0] * 6, {})
    edit_tensors(folder, lambda t: t["confidence_head.proj.bias"].add_(1))
    with pytest.raises(CheckpointError, match="was made for other weights"):
        load_drafter(folder, target)
    (folder / CALIBRATION).write_text("{")
    with pytest.raises(CheckpointError, match=r"calibration\.json cannot be read"):
        load_drafter(folder, target)
