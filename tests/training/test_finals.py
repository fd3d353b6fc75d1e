"""Final hidden states of captured text, and trainings on the target's own distribution."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from training_support import run

from dartree_exp.engines.batched import finished, tapped
from dartree_exp.errors import UserError
from dartree_exp.training.batches import feature_scale, load_captured, make_batch
from dartree_exp.training.card import stages
from dartree_exp.training.finals import main as finals
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.objective import DSPARK, sentences
from dartree_exp.training.shards import finals_path
from dartree_exp.training.validate import even_anchors

TAPS = (0, 2)
DSPARK_HEAD = {"ce": 0.1, "l1": 0.9, "gamma": 7.0, "schedule": "cosine", "block": 16}


def test_the_layers_above_a_tap_give_the_whole_forward(tiny):
    ids = torch.randint(4, 34, (3, 11), generator=torch.Generator().manual_seed(0))
    whole = tiny.opened._model.model(input_ids=ids).last_hidden_state
    torch.testing.assert_close(finished(tiny.opened, tapped(tiny.opened, ids, [2]), 2), whole)


def test_final_states_say_what_the_target_would(tiny, taught):
    """They differ from a forward over the text by the rounding of the captured features."""
    for sample in load_captured(taught.features, 0, TAPS, finals=True):
        whole = tiny.opened._model.model(input_ids=sample.ids[None]).last_hidden_state[0]
        assert sample.finals.dtype == torch.bfloat16
        assert (sample.finals.float() - whole).norm() < 0.02 * whole.norm()


def test_a_slot_is_taught_by_the_token_before_its_label(tiny, taught):
    """A target that predicts perfectly is the label, at every slot of every block."""
    held = load_captured(taught.features, 0, TAPS, finals=True)
    width = tiny.opened.hidden_size
    marked = [
        replace(s, finals=torch.eye(width)[torch.cat([s.ids[1:], s.ids[:1]]) % width].bfloat16())
        for s in held
    ]
    vocabulary = load_vocabulary(tiny.opened, list(range(40)), mask_token_id=0)
    anchors = [even_anchors(s, 5) for s in held]
    batch = make_batch(marked, anchors, 4, feature_scale(held), vocabulary)
    slots = torch.arange(4).expand(batch.labels.flatten(0, 1).shape)
    said = batch.finals.behind(slots).float().argmax(-1)
    labels = batch.labels.flatten()
    assert torch.equal(said[labels >= 0], labels[labels >= 0] % width)
    assert (labels >= 0).sum() > 20


def test_an_interrupted_run_continues(tiny, tmp_path, capsys):
    features = tmp_path / "features"
    shutil.copytree(tiny.features, features)
    options = ["--features", str(features), "--target", str(tiny.target)]
    finals([*options, "--part", "1/2"])
    kept = finals_path(features, 1).stat().st_mtime_ns
    assert not finals_path(features, 0).exists()
    finals(options)
    assert finals_path(features, 0).exists() and finals_path(features, 1).stat().st_mtime_ns == kept
    capsys.readouterr()
    finals(options)
    assert capsys.readouterr().out.startswith("0 shards")


@pytest.fixture(scope="module")
def backbone(taught, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dspark") / "training" / "backbone"
    run(taught, folder, steps=60)
    return folder


def test_dsparks_published_objective(taught, backbone):
    """The head learns under it, and the card says that it is the published one."""
    folder = backbone.parent / "dspark"
    small = {key: value for key, value in DSPARK_HEAD.items() if key != "block"}
    curve = run(taught, folder, stage="dspark", steps=40, init=backbone, **small)
    assert sum(curve[-1]["loss"]) < sum(curve[0]["loss"]) - 0.05
    stage = stages(folder)[-1]
    assert stage["objective"]["terms"] == DSPARK["terms"]
    assert "This run has the same." in sentences(stage["objective"], "markov", 16)


def test_a_backbone_learns_from_the_targets_distribution(taught, tmp_path):
    """JetSpec's forward KL, without decay."""
    curve = run(taught, tmp_path / "training" / "kl", steps=60, ce=0, kl=1, gamma=1e9)
    assert curve[-1]["base"] < 0.7 * curve[0]["base"]


def test_features_without_final_states_are_refused(tiny, backbone):
    with pytest.raises(UserError, match=r"run dartree_exp\.training\.finals"):
        run(tiny, backbone.parent / "none", stage="dspark", steps=1, init=backbone)


def test_damaged_final_states_are_refused(taught, tmp_path):
    features = tmp_path / "features"
    shutil.copytree(taught.features, features)
    path = finals_path(features, 0)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UserError, match="damaged"):
        load_captured(features, 0, TAPS, finals=True)
    shutil.copy(finals_path(features, 1), path)
    with pytest.raises(UserError, match="its shard has"):
        load_captured(features, 0, TAPS, finals=True)


def test_a_deeper_backbone_starts_as_the_shallower_one(taught, backbone):
    """One step at a learning rate of nothing: the held-out numbers are the shallower backbone's."""
    folder = backbone.parent / "deeper"
    options = {"layers": 3, "init": backbone, "validate_every": 1, "lr": 1e-12}
    [row] = run(taught, folder, steps=1, **options)
    before = (backbone / "curve.jsonl").read_text().splitlines()[-1]
    assert row["loss"] == pytest.approx(json.loads(before)["loss"], abs=2e-3)
    with pytest.raises(UserError, match=r"has 3 layers; set training\.layers=3, not 4"):
        run(taught, backbone.parent / "head", stage="head", layers=4, steps=1, init=folder)
