"""The trainer on a tiny target: it learns, resumes to the same state, and its export drafts what
training promised.
"""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from training_support import MIXTURE, interrupted, overrides, run

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.errors import UserError
from dartree_exp.records import RecordError
from dartree_exp.records.reader import Run, find_runs
from dartree_exp.trackers import TensorboardTracker
from dartree_exp.training.batches import load_captured, make_batch
from dartree_exp.training.card import render, stages
from dartree_exp.training.export import export, load_run
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.settings import base_share
from dartree_exp.training.state import load_state
from dartree_exp.training.validate import even_anchors


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A backbone and a head on top of it."""
    root = tmp_path_factory.mktemp("runs") / "training"
    backbone = run(tiny, root / "backbone", steps=80, short_until=0.5)
    head = run(tiny, root / "head", stage="head", steps=60, init=root / "backbone")
    return SimpleNamespace(root=root, backbone=backbone, head=head)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "training"


def same_state(one, other):
    (mine, my_meta), (theirs, their_meta) = load_state(one), load_state(other)
    assert my_meta["order"] == their_meta["order"]
    for group in ("model", "ema", "optimizer"):
        assert mine[group].keys() == theirs[group].keys()
        for name, value in mine[group].items():
            assert torch.equal(value, theirs[group][name]), (group, name)


def curve(folder):
    """Its lines, but for the times."""
    rows = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


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


def test_a_run_folder_says_how_it_ended(trained):
    found = Run(trained.root / "backbone")
    assert found.state == "DONE" and found.config["training"]["short_until"] == 0.5
    assert found.summary["step"] == 80 and found.summary["chain"] == trained.backbone[-1]["chain"]
    assert found.environment["weights"].keys() == {"target"}


def test_a_training_is_no_row_of_a_table(trained):
    with pytest.raises(
        RecordError, match=r"is a training, not a run: its numbers are in curve.jsonl"
    ):
        find_runs(trained.root / "backbone")
    with pytest.raises(RecordError, match="holds no run"):
        find_runs(trained.root)


@pytest.mark.parametrize("stage", ["backbone", "head", "dblast"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(tiny, trained, runs, stage):
    options = {"stage": stage, "steps": 12, "validate_every": 4}
    if stage == "head":
        options |= {"init": trained.root / "backbone", "head": "markov_rnn"}
    elif stage == "dblast":
        options |= {"init": trained.root / "backbone", **MIXTURE}
    run(tiny, runs / "whole", **options)
    interrupted(tiny, runs / "parts", 5, **options)
    assert load_state(runs / "parts")[1]["step"] == 5
    assert Run(runs / "parts").state == "INTERRUPTED"
    with (runs / "parts" / "curve.jsonl").open("a") as out:  # written after the checkpoint
        out.write('{"step": 8}\n{"ste')
    run(tiny, runs / "parts", **options)
    same_state(runs / "whole", runs / "parts")
    assert curve(runs / "whole") == curve(runs / "parts")
    assert [row["step"] for row in curve(runs / "parts")] == [4, 8, 12]


def test_a_finished_run_is_skipped_unless_forced(tiny, runs, capsys):
    run(tiny, runs / "run", steps=2)
    before = (runs / "run" / "checkpoint.safetensors").stat().st_mtime_ns
    run(tiny, runs / "run", steps=2)
    assert "is done already" in capsys.readouterr().out
    assert (runs / "run" / "checkpoint.safetensors").stat().st_mtime_ns == before
    assert run(tiny, runs / "run", steps=3, settings=["force=true"])[-1]["step"] == 3


def test_two_processes_are_one_within_rounding(tiny, trained, runs):
    options = {"stage": "head", "head": "markov", "init": trained.root / "backbone", "steps": 6}
    run(tiny, runs / "one", **options)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "dartree_exp.train"]
    command += overrides(tiny, runs / "two", **options)
    local = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}  # no look-up of the host's name
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=local)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held out at step") == 1  # one process speaks
    (one, _), (two, meta) = load_state(runs / "one"), load_state(runs / "two")
    assert (meta["step"], meta["workers"]) == (6, 2)
    fresh = load_state(trained.root / "backbone")[0]["model"]
    moved = 0
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, atol=2e-4, rtol=1e-3)
        moved += name.startswith("head.") and not torch.equal(value, fresh.get(name, value * 0))
    assert moved and Run(runs / "two").state == "DONE"


def test_more_processes_than_samples_are_refused(tiny, runs, monkeypatch):
    monkeypatch.setattr("dartree_exp.training.team.Team.__enter__", lambda self: self)
    monkeypatch.setattr("dartree_exp.training.team.Team.__exit__", lambda self, *error: None)
    monkeypatch.setattr("dartree_exp.training.team.Team.follow", lambda self, numbers: numbers)
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(UserError, match=r"training.samples=4: must be at least the number of"):
        run(tiny, runs / "run", steps=1)


def test_other_settings_are_not_resumed(tiny, runs):
    interrupted(tiny, runs / "run", 1, steps=4)
    with pytest.raises(UserError, match=r"training.gamma = 4.0, now 2.0; choose another name"):
        run(tiny, runs / "run", steps=4, gamma=2)
    run(tiny, runs / "run", steps=4, settings=["threads=2", "tracker.project=x"])


def test_joint_training_moves_backbone_and_head(tiny, runs):
    interrupted(tiny, runs / "joint", 1, steps=3, stage="joint")
    before, _ = load_state(runs / "joint")
    run(tiny, runs / "joint", steps=3, stage="joint")
    after, _ = load_state(runs / "joint")
    for name in ("backbone.fc.weight", "head.prefix_gru.weight_ih_l0", "head.embed_proj.2.weight"):
        assert not torch.equal(before["model"][name], after["model"][name]), name


def test_bfloat16_autocast_learns_too(tiny, runs, monkeypatch):
    monkeypatch.setattr("dartree_exp.training.step.cpu_has_bf16", lambda: True)
    rows = run(tiny, runs / "bf16", steps=40)
    assert rows[-1]["loss"][0] < rows[0]["loss"][0] < 3.4  # log(30): no better than chance
    assert load_state(runs / "bf16")[0]["model"]["backbone.fc.weight"].dtype == torch.float32


def test_notes_of_a_run_reach_the_card(tiny, runs):
    run(tiny, runs / "run", steps=2)
    assert stages(runs / "run")[0]["blocks"] == 2 * 4 * 6
    (runs / "run" / "notes.txt").write_text("Left early.\n")
    assert stages(runs / "run")[0]["notes"] == "Left early."


def test_a_tracker_mirrors_the_curve_of_a_resumed_run_whole(tiny, runs, monkeypatch):
    rows, settings = [], ["tracker=tensorboard"]
    monkeypatch.setattr(TensorboardTracker, "log_row", lambda self, row: rows.append(row))
    options = {"steps": 6, "validate_every": 2, "settings": settings}
    interrupted(tiny, runs / "run", 5, **options)
    assert [row["train/index"] for row in rows] == [2, 4]
    rows.clear()
    run(tiny, runs / "run", **options)
    assert [row["train/index"] for row in rows] == [2, 4, 6]
    assert {"train/base", "train/chain", "train/accuracy_3", "train/grad_norm"} <= rows[0].keys()
    assert list((runs / "run" / "tensorboard").iterdir())


def test_curriculum_goes_from_base_to_final():
    def settings(stage, base_decay=1.0):
        return SimpleNamespace(stage=stage, base_decay=base_decay)

    joint = settings("joint", 0.5)
    assert [base_share(joint, x) for x in (0.0, 0.25, 0.5, 1.0)] == [1.0, 0.5, 0.0, 0.0]
    assert base_share(settings("backbone"), 0.9) == 1.0
    assert base_share(settings("head"), 0.1) == 0.0


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
    export(trained.root / "head", tmp_path / "out", tiny.opened, card)
    written = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [s["stage"] for s in written["stages"]] == ["backbone", "head"]
    assert "Stage: head, gru" in render(written)
    stored = read_checkpoint(
        tmp_path / "out", use_head=True, dtype=torch.float32, device=torch.device("cpu")
    )
    assert stored.config.shift_label and stored.config.draft_vocab_size == 30

    model, ids, _ = load_run(trained.root / "head", tiny.opened)
    assert torch.equal(stored.vocab_ids, ids)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), mask_token_id=0)
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
    export(trained.root / "head", tmp_path / "out", tiny.opened, card)
    stored = read_checkpoint(
        tmp_path / "out", use_head=True, dtype=torch.float32, device=torch.device("cpu")
    )
    rows = stored.head.state_dict()["embed_proj.2.weight"].abs().sum(1)
    untrained = torch.ones(len(rows), dtype=torch.bool)
    untrained[stored.vocab_ids] = False
    assert float(rows[untrained].sum()) == 0
    assert float(rows[stored.vocab_ids].sum()) > 0
