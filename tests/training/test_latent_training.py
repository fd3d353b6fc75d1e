"""DBLast's latent head from training to decoding: it learns on the frozen backbone, resumes, is
exported with a card, and drafts what training promised.
"""

import json

import pytest
import torch
from test_card import settings as head_settings
from training_support import MIXTURE, overrides, run

from dartree_exp.drafters.dflash.checkpoint import read_checkpoint
from dartree_exp.errors import ConfigError
from dartree_exp.train import main as train
from dartree_exp.training.batches import generator, load_captured, make_batch
from dartree_exp.training.card import main as card
from dartree_exp.training.edges import main as edges
from dartree_exp.training.export import load_run
from dartree_exp.training.export import main as export
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.objective import objective_of, sentences
from dartree_exp.training.settings import from_json
from dartree_exp.training.state import load_state
from dartree_exp.training.step import Step, draw
from dartree_exp.training.tau import main as tau
from dartree_exp.training.tau import presets
from dartree_exp.training.validate import even_anchors
from dartree_exp.training.validate import main as validate


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """Backbone's run folder, the head's curve and run folder, the exported folder."""
    root = tmp_path_factory.mktemp("latent")
    runs = root / "training"
    run(tiny, runs / "backbone", steps=60)
    curve = run(tiny, runs / "head", stage="dblast", steps=80, init=runs / "backbone", **MIXTURE)
    paths = ["--run", str(runs / "head"), "--data", str(tiny.data), "--target", str(tiny.target)]
    assert export([*paths, "--out", str(root / "out"), "--holdout", "2"]) == 0
    return runs / "backbone", curve, runs / "head", root / "out"


def test_it_learns_and_leaves_the_backbone_alone(made):
    (before, _), (after, meta) = load_state(made[0]), load_state(made[2])
    for name, value in before["ema"].items():
        if name.startswith("backbone."):
            assert torch.equal(value, after["model"][name]), name
    first, last = made[1][0], made[1][-1]
    assert last["accepted"] > first["accepted"] + 0.1 and last["final"] < first["final"]
    assert sum(last["loss"]) < sum(first["loss"]) - 0.05
    for name in ("down_proj.weight", "factors", "up_proj.weight", "prior_proj.weight"):
        assert after["model"][f"head.{name}"].abs().sum() > 0, name
    assert "logarithm" in meta["objective"]["terms"][1]["loss"]


def test_joint_training_moves_backbone_and_mixture(tiny, made, tmp_path):
    mine = tmp_path / "training" / "joint"
    options = {**MIXTURE, "head": "latent", "accept": 1.0, "latent_prior": "root"}
    [row] = run(tiny, mine, stage="joint", steps=4, init=made[0], validate_every=4, **options)
    assert row["base"] > 0 and row["accepted"] > 0
    before, after = load_state(made[0])[0]["ema"], load_state(mine)[0]["model"]
    assert not torch.equal(before["backbone.fc.weight"], after["backbone.fc.weight"])
    for name in ("up_proj.weight", "prior_proj.weight"):  # zero at first
        assert after[f"head.{name}"].abs().sum() > 0


def test_gradients_of_the_processes_add_up_to_those_of_one(tiny, made, monkeypatch):
    """In float32: two shares of a batch, divided by the sums over both."""
    monkeypatch.setattr("dartree_exp.training.step.cpu_has_bf16", lambda: False)
    model, ids, meta = load_run(made[2], tiny.opened)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), 0)
    settings, _ = from_json(meta["settings"])
    model.head.bind(vocabulary.embed, lm_head=vocabulary.head)
    model.backbone.requires_grad_(False)
    held = load_captured(tiny.features, 1, (0, 2))[:4]

    def gradients(*shares, whole=True):
        model.zero_grad()
        batches = [
            make_batch(part, [even_anchors(x, 5) for x in part], 4, model.feature_scale, vocabulary)
            for part in shares
        ]
        drawn = [
            draw(batch, settings, [generator(0)] * len(part))
            for batch, part in zip(batches, shares, strict=True)
        ]
        totals = [sum(parts) for parts in zip(*(one.totals for one in drawn), strict=True)]
        for batch, one in zip(batches, drawn, strict=True):
            step = Step(model, settings, vocabulary)
            step(batch, one, totals if whole else one.totals, 0.5).backward()
        return torch.cat([p.grad.flatten() for p in model.head.parameters()])

    one, two = gradients(held), gradients(held[:1], held[1:])
    torch.testing.assert_close(two, one, atol=1e-5 * float(one.abs().max()), rtol=1e-3)
    control = gradients(held[:1], held[1:], whole=False)
    assert (control - one).norm() > 0.1 * one.norm()


def test_the_exported_folder_has_the_accuracy_of_the_run_and_decodes_exactly(tiny, made, tmp_path):
    _, curve, _, folder = made
    stored = read_checkpoint(folder, dtype=torch.float32)
    assert stored.config.head.kind == "latent" and stored.config.head.num_latents == 3
    accuracy, validation = tmp_path / "a.json", tmp_path / "v.json"
    options = ["--features", str(tiny.features), "--target", str(tiny.target)]
    assert validate(["--drafter", str(folder), *options, "--out", str(accuracy)]) == 0
    row = json.loads(accuracy.read_text())["rows"][1]
    assert row["logits"] == "with the head"
    assert row["accuracy"] == pytest.approx(curve[-1]["accuracy"], abs=0.03)
    prompts = ["--data", str(tiny.data), "--holdout", "2", "--cap", "20"]
    drafter, model = ["--drafter", str(folder)], ["--set", f"model.path={tiny.target}"]
    assert tau([*drafter, *prompts, "--samples", "1", "--out", str(validation), *model]) == 0
    rows = json.loads(validation.read_text())["rows"]
    methods = list(presets(folder))
    assert {"dflash", "ddtree", "dblast", "dblast_tree"} <= set(methods)
    assert [(r["method"], r["temperature"]) for r in rows] == [
        (name, t) for t in (0.0, 1.0) for name in methods
    ]
    found = {r["method"]: r["tau"]["all"] for r in rows if r["temperature"] == 0}
    assert not any(r["differing"] for r in rows) and found["dblast_tree"] > 1.5
    measured = ["--accuracy", str(accuracy), "--validation", str(validation)]
    assert card([*drafter, *measured, "--out", str(folder)]) == 0
    text = (folder / "card.md").read_text()
    assert "`drafter=dblast`" in text and "Stage: head, latent" in text
    assert "expected accepted length" in text
    pairs = tmp_path / "edges.json"
    assert edges([*drafter, *prompts, "--samples", "2", "--out", str(pairs), *model]) == 0
    assert set(json.loads(pairs.read_text())["pairs"]) == {"marginal", "mixture"}


def test_a_head_alone_is_exported_beside_its_backbone(tiny, made, tmp_path):
    paths = ["--data", str(tiny.data), "--target", str(tiny.target), "--holdout", "2"]
    shared, alone = str(tmp_path / "shared"), tmp_path / "alone"
    assert export(["--run", str(made[0]), *paths, "--out", shared]) == 0
    options = [*paths, "--backbone", shared, "--out", str(alone)]
    assert export(["--run", str(made[2]), *options]) == 0
    whole, head = read_checkpoint(made[3]), read_checkpoint(alone)
    assert whole.config.head == head.config.head
    for name, value in whole.head.state_dict().items():
        assert torch.equal(value, head.head.state_dict()[name]), name
    assert (alone / "model.safetensors").stat().st_size < 4000


def test_the_objective_in_words():
    s = head_settings("latent")
    s.accept, s.accept_form, s.accept_threshold = 0.5, "expected", 0.1
    terms = objective_of(s)["terms"]
    assert [t["weight"] for t in terms] == ["1", "0.5"] and "of the mixture" in terms[0]["loss"]
    said = sentences(objective_of(s), "latent", 16)
    assert "reached with probability 0.1 or more (weight 0.5)" in said and "exp(-k/4)" in said
    s.ce = 0.0
    assert "exp(-k" not in sentences(objective_of(s), "latent", 16)


@pytest.mark.parametrize(
    ("stage", "changed", "said"),
    [
        ("dblast", {"loss_slots": 2}, "loss_slots=2, training.head=latent: .* use 4"),
        ("dblast", {"kl": 1.0}, "training.kl=1, training.rkl=0, training.head=latent: a mixture"),
        ("dblast", {"head": "gru"}, "training.accept=1: .* needs training.head=latent and"),
        ("backbone", {"accept": 1.0}, "training.accept=1: is the accepted length of a mixture"),
        ("dblast", {"accept": 0.0, "ce": 0.0}, "training.accept=0: at least one must be above 0"),
        (
            "joint",
            {"head": "latent", "accept": 1, "ce": 0, **MIXTURE},
            "training.ce=0, training.stage",
        ),
        ("dblast", {"accept_form": "linear"}, "must be one of log, expected"),
    ],
)
def test_settings_that_do_not_fit_a_mixture(tiny, made, tmp_path, stage, changed, said):
    own = {**MIXTURE, **changed} if stage == "dblast" else changed
    typed = overrides(tiny, tmp_path / "training" / "x", stage, steps=1, init=made[0], **own)
    with pytest.raises(ConfigError, match=said):
        train(typed)
