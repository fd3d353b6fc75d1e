"""DSpark's heads on the frozen backbone: they learn, share its text and steps, and are exported
without it.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from training_support import interrupted, run

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.errors import UserError
from dartree_exp.training.batches import feature_scale, generator, load_captured, make_batch
from dartree_exp.training.export import export, load_run
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import load_state, save_state
from dartree_exp.training.step import Step, draw
from dartree_exp.training.validate import even_anchors

KINDS = ("markov", "markov_gated", "markov_rnn")
CARD = {
    "name": "tiny",
    "summary": "s",
    "target": "t",
    "data": {"file": "text", "sha256": "0" * 64, "held_out": []},
}


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A backbone and one run per head on it; `curves` by kind."""
    root = tmp_path_factory.mktemp("markov") / "training"
    run(tiny, root / "backbone", steps=60)
    options = {"stage": "head", "steps": 50, "init": root / "backbone"}
    curves = {kind: run(tiny, root / kind, head=kind, **options) for kind in KINDS}
    return SimpleNamespace(root=root, curves=curves)


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_learns_and_leaves_the_backbone_alone(trained, kind):
    (before, _), (after, meta) = (
        load_state(trained.root / "backbone"),
        load_state(trained.root / kind),
    )
    for name, value in before["ema"].items():
        if name.startswith("backbone."):
            assert torch.equal(value, after["model"][name]), name
    first, last = trained.curves[kind][0], trained.curves[kind][-1]
    assert sum(last["loss"]) < sum(first["loss"]) - 0.05
    assert last["confidence"] < 0.69  # log 2: better than a coin
    assert meta["settings"]["head"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_tokens_that_never_came_before_stay_zero(trained, kind):
    rows = load_state(trained.root / kind)[0]["model"]["head.markov_w1.weight"].abs().sum(1)
    assert rows[34:].sum() == 0 and rows[0] == 0  # the text has ids 1 to 33
    assert (rows[4:34] > 0).sum() > 20


def gradients(tiny, trained, kind, broken=False, **changed):
    """Parameter gradients of one step of a trained run, by name."""
    model, ids, meta = load_run(trained.root / kind, tiny.opened)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), mask_token_id=0)
    model.head.bind(vocabulary.embed)
    model.backbone.requires_grad_(False)
    if broken:
        model.confidence = None
    held = load_captured(tiny.features, 0, (0, 2))
    batch = make_batch(held, [even_anchors(s, 5) for s in held], 4, model.feature_scale, vocabulary)
    settings = replace(from_json(meta["settings"])[0], **changed)
    drawn = draw(batch, settings, [generator(1, place) for place in range(len(held))])
    Step(model, settings, vocabulary)(batch, drawn, drawn.totals, 0.5).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_the_confidence_loss_reaches_its_own_head_only(tiny, trained, kind):
    with_it, without = gradients(tiny, trained, kind), gradients(tiny, trained, kind, broken=True)
    assert {name for name in with_it if name not in without} == {
        "confidence.proj.weight",
        "confidence.proj.bias",
    }
    assert with_it["confidence.proj.weight"].abs().sum() > 0
    assert all(
        torch.equal(with_it[name], value) and value.abs().sum() > 0
        for name, value in without.items()
    )


def test_dsparks_confidence_loss_also_reaches_w1(tiny, trained):
    alone, whole = (
        gradients(tiny, trained, "markov", confidence_gradient=reach) for reach in ("head", "all")
    )
    assert {name for name in alone if not torch.equal(alone[name], whole[name])} == {
        "head.markov_w1.weight"
    }


def test_a_head_alone_is_exported_beside_its_backbone(tiny, trained, tmp_path):
    export(trained.root / "backbone", tmp_path / "shared", tiny.opened, CARD)
    for kind in KINDS:
        export(
            trained.root / kind, tmp_path / kind, tiny.opened, CARD, backbone=tmp_path / "shared"
        )
        card = json.loads((tmp_path / kind / "card.json").read_text())
        assert [s["stage"] for s in card["stages"]] == ["backbone", "head"]
        text = (tmp_path / kind / "card.md").read_text()
        assert card["backbone"]["sha256"] in text and f"Stage: head, {kind}" in text
        stored = read_checkpoint(tmp_path / kind, dtype=torch.float32)
        assert stored.config.head.kind == kind and stored.confidence is not None
        model, ids, _ = load_run(trained.root / kind, tiny.opened)
        assert torch.equal(stored.vocab_ids, ids)
        outside = torch.ones(40, dtype=torch.bool).index_fill(0, ids, False)
        assert stored.head.output[outside].abs().sum() == 0
        hidden, tokens = torch.randn(3, 4, 32), torch.randint(4, 30, (3, 4))
        torch.testing.assert_close(
            stored.head(hidden, tokens)[..., ids], model.head(hidden, tokens), atol=0.1, rtol=0.05
        )
    assert (tmp_path / "markov" / "model.safetensors").stat().st_size < 4000


def test_a_head_of_another_backbone_is_not_exported(tiny, trained, tmp_path):
    run(tiny, tmp_path / "training" / "other", steps=2, seed=1)
    export(tmp_path / "training" / "other", tmp_path / "shared", tiny.opened, CARD)
    with pytest.raises(ValueError, match="is not the backbone this run's head was trained on"):
        export(
            trained.root / "markov",
            tmp_path / "alone",
            tiny.opened,
            CARD,
            backbone=tmp_path / "shared",
        )


def hidden(tiny, run):
    """What the backbone of a run computes at held-out anchors."""
    model, ids, _ = load_run(run, tiny.opened)
    held = load_captured(tiny.features, 0, (0, 2))
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), mask_token_id=0)
    anchors = [even_anchors(s, 5) for s in held]
    batch = make_batch(held, anchors, 4, model.feature_scale, vocabulary)
    return block_hidden(model.backbone, batch.inputs, 4)


@pytest.mark.parametrize("vocab", [30, 20])
def test_a_head_is_trained_on_an_exported_backbone(tiny, trained, tmp_path, vocab):
    """Without the run that made it: the backbone stays what it is, whatever ids the head drafts
    over, and the card keeps its history.
    """
    shared, mine = tmp_path / "shared", tmp_path / "training" / "head"
    export(trained.root / "backbone", shared, tiny.opened, CARD)
    run(tiny, mine, stage="head", head="markov", steps=30, vocab=vocab, init=shared)
    torch.testing.assert_close(
        hidden(tiny, mine), hidden(tiny, trained.root / "backbone"), atol=0.1, rtol=0.05
    )
    alone = {} if vocab == 20 else {"backbone": shared}
    export(mine, tmp_path / "out", tiny.opened, CARD, **alone)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [s["stage"] for s in card["stages"]] == ["backbone", "head"]


def test_an_exported_backbone_goes_on_under_the_features_own_scale(tiny, trained, tmp_path):
    """The scale is folded into an exported `fc`. Trained on raw features, whose sizes differ a
    hundredfold, its inputs would have no common learning rate.
    """
    shared, mine = tmp_path / "shared", tmp_path / "training" / "more"
    export(trained.root / "backbone", shared, tiny.opened, CARD)
    interrupted(tiny, mine, 1, steps=2, init=shared, lr=1e-9)
    (started, _), (before, _) = load_state(mine), load_state(trained.root / "backbone")
    scale = started["model"]["feature_scale"]
    assert torch.equal(scale, feature_scale(load_captured(tiny.features, 0, (0, 2))))
    torch.testing.assert_close(
        started["model"]["backbone.fc.weight"], before["ema"]["backbone.fc.weight"],
        atol=1e-2, rtol=1e-2,
    )  # fmt: skip
    torch.testing.assert_close(
        hidden(tiny, mine), hidden(tiny, trained.root / "backbone"), atol=0.1, rtol=0.05
    )


def test_a_start_that_does_not_fit_is_refused(tiny, trained, tmp_path):
    runs = tmp_path / "training"
    head = {"stage": "head", "head": "markov", "steps": 1}
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="neither a run with a checkpoint nor an exported drafter"):
        run(tiny, runs / "a", **head, init=tmp_path / "empty")
    export(trained.root / "backbone", tmp_path / "shared", tiny.opened, CARD)
    for name in ("shared", "backbone"):
        init = (tmp_path if name == "shared" else trained.root) / name
        with pytest.raises(UserError, match="backbone has mask_token_id = 0, not 1"):
            run(tiny, runs / f"mask_{name}", **head, init=init, mask_token_id=1)
        with pytest.raises(UserError, match=r"has 2 layers; set training\.layers=2, not 1"):
            run(tiny, runs / f"size_{name}", **head, init=init, layers=1)
        with pytest.raises(UserError, match="weights of other sizes than these settings"):
            run(tiny, runs / f"fewer_{name}", steps=1, init=init, layers=1)
    with pytest.raises(UserError, match="its head drafts over other ids"):
        run(tiny, runs / "c", **head, init=trained.root / "markov", vocab=20)


def test_a_backbone_run_is_a_start_for_other_ids(tiny, trained, tmp_path):
    mine = tmp_path / "training" / "head"
    run(tiny, mine, stage="head", steps=2, init=trained.root / "backbone", vocab=20)
    assert torch.equal(hidden(tiny, mine), hidden(tiny, trained.root / "backbone"))


def test_a_trained_head_goes_on(tiny, trained, tmp_path):
    mine = tmp_path / "training" / "more"
    init = trained.root / "markov"
    interrupted(tiny, mine, 1, stage="head", head="markov", steps=2, init=init, lr=1e-9)
    (started, _), (before, _) = load_state(mine), load_state(init)
    for name, value in before["ema"].items():
        torch.testing.assert_close(started["model"][name], value)


def test_the_recurrent_head_is_trained_on_what_it_drafts_with(tiny, trained):
    """Codes at drawn slots equal those of the whole teacher-forced block."""
    model, ids, _ = load_run(trained.root / "markov_rnn", tiny.opened)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), mask_token_id=0)
    held = load_captured(tiny.features, 0, (0, 2))
    batch = make_batch(held, [even_anchors(s, 3) for s in held], 4, model.feature_scale, vocabulary)
    hidden, tokens = (
        block_hidden(model.backbone, batch.inputs, 4).flatten(0, 1),
        batch.previous.flatten(0, 1),
    )
    slots = torch.tensor([1, 3]).expand(len(tokens), 2)
    torch.testing.assert_close(
        model.head.codes(hidden, tokens, slots), model.head.codes(hidden, tokens)[:, [1, 3]]
    )


def test_runs_from_before_there_were_markov_heads_still_load(tiny, trained, tmp_path):
    tensors, meta = load_state(trained.root / "backbone")
    for key in ("head", "markov_rank"):
        del meta["settings"][key]
    save_state(tmp_path / "old", tensors, meta)
    assert from_json(meta["settings"])[0].head == "gru"
    assert load_run(tmp_path / "old", tiny.opened)[0].backbone.config.head.kind == "gru"
    head = {"stage": "head", "head": "markov"}
    run(tiny, tmp_path / "training" / "head", **head, steps=1, init=tmp_path / "old")
