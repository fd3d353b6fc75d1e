"""The trainer on a tiny target: it learns, resumes to the same state, and its export drafts what
training promised.
"""

import json
from types import SimpleNamespace

import pytest
import torch
from training_support import run

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.training.batches import load_captured, make_batch
from dartree_exp.training.card import render, stages
from dartree_exp.training.export import export, load_run
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.settings import TrainSettings
from dartree_exp.training.state import load_state
from dartree_exp.training.validate import even_anchors


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A backbone and a head on top of it."""
    root = tmp_path_factory.mktemp("runs")
    backbone = run(tiny, root / "backbone", "--steps", "80", "--short-until", "0.5")
    head = run(
        tiny, root / "head", "--steps", "60", "--stage", "head", "--init", str(root / "backbone")
    )
    return SimpleNamespace(root=root, backbone=backbone, head=head)


def test_loss_falls_and_slots_become_right(trained):
    first, last = trained.backbone[0], trained.backbone[-1]
    assert last["loss"][0] < 0.6 * first["loss"][0]
    assert last["accuracy"][0] > 0.6
    assert trained.head[-1]["loss"][-1] <= trained.backbone[-1]["loss"][-1] + 0.05


def test_head_stage_leaves_the_backbone_alone(trained):
    (before, _), (after, _) = (
        load_state(trained.root / "backbone"),
        load_state(trained.root / "head"),
    )
    for name, value in before["ema"].items():
        same = torch.equal(value, after["model"][name])
        assert same == name.startswith("backbone."), name
        if name == "head.embed_proj.2.weight":
            assert after["model"][name].abs().sum() > 0


def test_a_resumed_run_ends_in_the_same_state(tiny, tmp_path):
    run(tiny, tmp_path / "whole", "--steps", "12")
    run(tiny, tmp_path / "parts", "--steps", "12", "--stop-after", "5")
    assert load_state(tmp_path / "parts")[1]["step"] == 5
    run(tiny, tmp_path / "parts", "--steps", "12")
    (whole, whole_meta), (parts, parts_meta) = (
        load_state(tmp_path / "whole"),
        load_state(tmp_path / "parts"),
    )
    assert whole_meta["order"] == parts_meta["order"]
    for group in ("model", "ema", "optimizer"):
        for name, value in whole[group].items():
            assert torch.equal(value, parts[group][name]), (group, name)


def test_two_processes_agree(tiny, tmp_path):
    run(tiny, tmp_path / "two", "--steps", "6", "--workers", "2", "--samples", "2")
    meta = load_state(tmp_path / "two")[1]
    assert (meta["step"], meta["workers"]) == (6, 2)


def test_other_settings_are_not_resumed(tiny, tmp_path):
    run(tiny, tmp_path / "run", "--steps", "4", "--stop-after", "1")
    with pytest.raises(ValueError, match="other settings: gamma"):
        run(tiny, tmp_path / "run", "--steps", "4", "--gamma", "2")


def test_joint_training_moves_backbone_and_head(tiny, tmp_path):
    run(tiny, tmp_path / "joint", "--steps", "3", "--stop-after", "1", "--stage", "joint")
    before, _ = load_state(tmp_path / "joint")
    run(tiny, tmp_path / "joint", "--steps", "3", "--stage", "joint")
    after, _ = load_state(tmp_path / "joint")
    for name in ("backbone.fc.weight", "head.prefix_gru.weight_ih_l0", "head.embed_proj.2.weight"):
        assert not torch.equal(before["model"][name], after["model"][name]), name


def test_bfloat16_autocast_learns_too(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("dartree_exp.training.model.cpu_has_bf16", lambda: True)
    rows = run(tiny, tmp_path / "bf16", "--steps", "40")
    assert rows[-1]["loss"][0] < rows[0]["loss"][0] < 3.4  # log(30): no better than chance
    assert load_state(tmp_path / "bf16")[0]["model"]["backbone.fc.weight"].dtype == torch.float32


def test_notes_of_a_run_reach_the_card(tiny, tmp_path):
    run(tiny, tmp_path / "run", "--steps", "2")
    assert stages(tmp_path / "run")[0]["blocks"] == 2 * 4 * 6
    (tmp_path / "run" / "notes.txt").write_text("Left early.\n")
    assert stages(tmp_path / "run")[0]["notes"] == "Left early."


def test_curriculum_goes_from_base_to_final():
    joint = TrainSettings(stage="joint", base_decay=0.5)
    assert [joint.base_share(x) for x in (0.0, 0.25, 0.5, 1.0)] == [1.0, 0.5, 0.0, 0.0]
    assert TrainSettings(stage="backbone").base_share(0.9) == 1.0
    assert TrainSettings(stage="head").base_share(0.1) == 0.0


def test_export_gives_the_same_drafts_through_the_inference_path(tiny, trained, tmp_path):
    """Slot by slot, on the same held-out samples: what training counts as right is what drafting
    proposes.
    """
    card = {
        "name": "tiny",
        "summary": "test",
        "target": "tiny",
        "data": {"file": "text", "sha256": "0" * 64, "held_out": []},
    }
    export(trained.root / "head", tmp_path / "out", tiny.target, card)
    written = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [s["stage"] for s in written["stages"]] == ["backbone", "head"]
    assert "Stage: head, gru" in render(written)
    stored = read_checkpoint(
        tmp_path / "out", use_head=True, dtype=torch.float32, device=torch.device("cpu")
    )
    assert stored.config.shift_label and stored.config.draft_vocab_size == 30

    model, ids, _ = load_run(trained.root / "head", tiny.target)
    assert torch.equal(stored.vocab_ids, ids)
    vocabulary = load_vocabulary(tiny.target, ids.tolist(), mask_token_id=0)
    held = load_captured(tiny.features, 0, (0, 2))
    anchors = [even_anchors(s, 5) for s in held]
    with torch.no_grad():
        batch = make_batch(held, anchors, 4, model.feature_scale, vocabulary)
        train_logits = block_hidden(model.backbone, batch.inputs, 4) @ vocabulary.head.T
        train_choice = train_logits.argmax(-1)
        agree = total = 0
        for i, sample in enumerate(held):
            for j, anchor in enumerate(anchors[i].tolist()):
                block = vocabulary.embed[torch.tensor([int(sample.ids[anchor]), 0, 0, 0])][None]
                places = torch.arange(anchor)[None], torch.arange(anchor, anchor + 4)[None]
                cache = stored.backbone.new_cache()
                hidden = stored.backbone(
                    sample.features[:anchor].float()[None], block, *places, cache=cache
                )[0]
                agree += int(((hidden @ vocabulary.head.T).argmax(-1) == train_choice[i, j]).sum())
                total += 4
    assert agree / total > 0.97  # bfloat16 weights may flip a near tie


def test_export_restricts_the_head_to_trained_rows(tiny, trained, tmp_path):
    card = {
        "name": "tiny",
        "summary": "test",
        "target": "tiny",
        "data": {"file": "text", "sha256": "0" * 64, "held_out": []},
    }
    export(trained.root / "head", tmp_path / "out", tiny.target, card)
    stored = read_checkpoint(
        tmp_path / "out", use_head=True, dtype=torch.float32, device=torch.device("cpu")
    )
    rows = stored.head.state_dict()["embed_proj.2.weight"].abs().sum(1)
    untrained = torch.ones(len(rows), dtype=torch.bool)
    untrained[stored.vocab_ids] = False
    assert float(rows[untrained].sum()) == 0
    assert float(rows[stored.vocab_ids].sum()) > 0
