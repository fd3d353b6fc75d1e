"""DSpark's heads on the frozen backbone: they learn, share its text and steps, and are exported
without it.
"""

import json
from types import SimpleNamespace

import pytest
import torch
from training_support import run

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.training.batches import generator, load_captured, make_batch
from dartree_exp.training.export import export, load_run
from dartree_exp.training.forward import block_hidden
from dartree_exp.training.model import load_vocabulary, step_gradients
from dartree_exp.training.settings import TrainSettings, from_json, to_json
from dartree_exp.training.state import load_state, save_state
from dartree_exp.training.validate import even_anchors

KINDS = ("markov", "markov_gated", "markov_rnn")
MARKOV = ["--stage", "head", "--markov-rank", "6"]
CARD = {
    "name": "tiny",
    "summary": "s",
    "target": "t",
    "data": {"file": "text", "sha256": "0" * 64, "held_out": []},
}


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A backbone and one run per head on it; `curves` by kind."""
    root = tmp_path_factory.mktemp("markov")
    run(tiny, root / "backbone", "--steps", "60")
    init = ["--init", str(root / "backbone")]
    curves = {
        kind: run(tiny, root / kind, "--steps", "50", *MARKOV, "--head", kind, *init)
        for kind in KINDS
    }
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


def gradients(tiny, trained, kind, broken=False):
    """Parameter gradients of one step of a trained run, by name."""
    model, ids, meta = load_run(trained.root / kind, tiny.target)
    vocabulary = load_vocabulary(tiny.target, ids.tolist(), mask_token_id=0)
    model.head.bind(vocabulary.embed)
    model.backbone.requires_grad_(False)
    if broken:
        model.confidence = None
    held = load_captured(tiny.features, 0, (0, 2))
    batch = make_batch(held, [even_anchors(s, 5) for s in held], 4, model.feature_scale, vocabulary)
    step_gradients(model, batch, from_json(meta["settings"]), vocabulary, 0.5, generator(1))
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


def test_a_head_alone_is_exported_beside_its_backbone(tiny, trained, tmp_path):
    export(trained.root / "backbone", tmp_path / "shared", tiny.target, CARD)
    for kind in KINDS:
        export(
            trained.root / kind, tmp_path / kind, tiny.target, CARD, backbone=tmp_path / "shared"
        )
        card = json.loads((tmp_path / kind / "card.json").read_text())
        assert [s["stage"] for s in card["stages"]] == ["backbone", "head"]
        text = (tmp_path / kind / "card.md").read_text()
        assert card["backbone"]["sha256"] in text and f"Stage: head, {kind}" in text
        stored = read_checkpoint(tmp_path / kind, dtype=torch.float32)
        assert stored.config.head.kind == kind and stored.confidence is not None
        model, ids, _ = load_run(trained.root / kind, tiny.target)
        assert torch.equal(stored.vocab_ids, ids)
        outside = torch.ones(40, dtype=torch.bool).index_fill(0, ids, False)
        assert stored.head.output[outside].abs().sum() == 0
        hidden, tokens = torch.randn(3, 4, 32), torch.randint(4, 30, (3, 4))
        torch.testing.assert_close(
            stored.head(hidden, tokens)[..., ids], model.head(hidden, tokens), atol=0.1, rtol=0.05
        )
    assert (tmp_path / "markov" / "model.safetensors").stat().st_size < 4000


def test_a_head_of_another_backbone_is_not_exported(tiny, trained, tmp_path):
    run(tiny, tmp_path / "other", "--steps", "2", "--seed", "1")
    export(tmp_path / "other", tmp_path / "shared", tiny.target, CARD)
    with pytest.raises(ValueError, match="is not the backbone this run's head was trained on"):
        export(
            trained.root / "markov",
            tmp_path / "alone",
            tiny.target,
            CARD,
            backbone=tmp_path / "shared",
        )


def test_a_head_is_trained_on_an_exported_backbone(tiny, trained, tmp_path):
    """Without the run that made it: the backbone stays what it is, bit for bit, and the card keeps
    its history.
    """
    shared = tmp_path / "shared"
    export(trained.root / "backbone", shared, tiny.target, CARD)
    run(
        tiny, tmp_path / "head", "--steps", "30", *MARKOV, "--head", "markov", "--init", str(shared)
    )
    export(tmp_path / "head", tmp_path / "alone", tiny.target, CARD, backbone=shared)
    card = json.loads((tmp_path / "alone" / "card.json").read_text())
    assert [s["stage"] for s in card["stages"]] == ["backbone", "head"]
    run_of = load_run(trained.root / "backbone", tiny.target)[0]
    held = load_captured(tiny.features, 0, (0, 2))
    vocabulary = load_vocabulary(
        tiny.target, load_run(tmp_path / "head", tiny.target)[1].tolist(), mask_token_id=0
    )

    def hidden(model):
        batch = make_batch(
            held, [even_anchors(s, 5) for s in held], 4, model.feature_scale, vocabulary
        )
        return block_hidden(model.backbone, batch.inputs, 4)

    torch.testing.assert_close(
        hidden(load_run(tmp_path / "head", tiny.target)[0]), hidden(run_of), atol=0.1, rtol=0.05
    )


def test_a_start_that_is_none_is_refused(tiny, trained, tmp_path):
    options = ["--steps", "1", *MARKOV, "--head", "markov", "--init"]
    with pytest.raises(ValueError, match="neither a run with a checkpoint nor an exported drafter"):
        run(tiny, tmp_path / "a", *options, str(tmp_path / "nowhere"))
    export(trained.root / "backbone", tmp_path / "shared", tiny.target, CARD)
    with pytest.raises(ValueError, match="drafts over other ids"):
        run(tiny, tmp_path / "b", *options, str(tmp_path / "shared"), "--vocab", "20")


def test_a_resumed_run_ends_in_the_same_state(tiny, trained, tmp_path):
    options = [
        "--steps",
        "8",
        *MARKOV,
        "--head",
        "markov_rnn",
        "--init",
        str(trained.root / "backbone"),
    ]
    run(tiny, tmp_path / "whole", *options)
    run(tiny, tmp_path / "parts", *options, "--stop-after", "3")
    run(tiny, tmp_path / "parts", *options)
    (whole, _), (parts, _) = load_state(tmp_path / "whole"), load_state(tmp_path / "parts")
    for group in ("model", "ema", "optimizer"):
        assert all(
            torch.equal(value, parts[group][name]) for name, value in whole[group].items()
        ), group


def test_the_recurrent_head_is_trained_on_what_it_drafts_with(tiny, trained):
    """Codes at drawn slots equal those of the whole teacher-forced block."""
    model, ids, _ = load_run(trained.root / "markov_rnn", tiny.target)
    vocabulary = load_vocabulary(tiny.target, ids.tolist(), mask_token_id=0)
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
    (tmp_path / "old" / "curve.jsonl").write_text(
        (trained.root / "backbone" / "curve.jsonl").read_text()
    )
    assert to_json(from_json(meta["settings"]))["head"] == "gru"
    assert run(tiny, tmp_path / "old", "--steps", "61")[-1]["step"] == 61
    run(
        tiny,
        tmp_path / "head",
        "--steps",
        "1",
        *MARKOV,
        "--head",
        "markov",
        "--init",
        str(tmp_path / "old"),
    )


def test_an_unknown_head_is_refused():
    with pytest.raises(ValueError, match="head = 'dspark': gru, markov, markov_gated, markov_rnn"):
        TrainSettings(head="dspark")
