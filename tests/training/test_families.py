"""EAGLE-3 and Medusa from training to decoding: they learn, resume, are exported in their official
layouts with a card, and draft what training promised.
"""

import json

import pytest
from training_support import interrupted, overrides, run

from dartree_exp.config import compose
from dartree_exp.drafters import load_drafter
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.train import main as train
from dartree_exp.training.card import main as card
from dartree_exp.training.export import main as export
from dartree_exp.training.state import load_state
from dartree_exp.training.tau import main as tau
from dartree_exp.training.tau import presets
from dartree_exp.training.validate import main as validate

OWN = {
    "eagle": {"vocab": 30, "block": 4, "lr": 0.003},
    "medusa": {"vocab": "null", "block": 3, "lr": 0.01},
}
FAMILIES = pytest.mark.parametrize("family", list(OWN))


@pytest.fixture(scope="module")
def made(taught, tmp_path_factory):
    """{family: (curve, run folder, exported folder)}."""
    found = {}
    for family, own in OWN.items():
        out = tmp_path_factory.mktemp(family)
        folder = out / "training" / "run"
        curve = run(taught, folder, stage=family, steps=80, **own)
        paths = ["--run", str(folder), "--data", str(taught.data), "--target", str(taught.target)]
        assert export([*paths, "--out", str(out / "out"), "--holdout", "2"]) == 0
        found[family] = curve, folder, out / "out"
    return found


@FAMILIES
def test_it_learns(made, family):
    first, last = made[family][0][0], made[family][0][-1]
    assert last["base"] < 0.8 * first["base"] and last["chain"] > first["chain"]


@FAMILIES
def test_a_resumed_training_is_the_uninterrupted_one(taught, tmp_path, family):
    options = {"stage": family, "steps": 6, **OWN[family]}
    runs = tmp_path / "training"
    run(taught, runs / "whole", **options)
    interrupted(taught, runs / "parts", 3, **options)
    run(taught, runs / "parts", **options)
    (one, _), (other, _) = load_state(runs / "whole"), load_state(runs / "parts")
    assert one["model"].keys() == other["model"].keys()
    for name, value in one["model"].items():
        assert value.equal(other["model"][name]), name


@FAMILIES
def test_the_exported_folder_has_the_accuracy_of_the_run_and_decodes_exactly(
    taught, made, tmp_path, family, capsys
):
    curve, _, folder = made[family]
    accuracy, validation = tmp_path / "a.json", tmp_path / "v.json"
    options = ["--features", str(taught.features), "--target", str(taught.target)]
    assert validate(["--drafter", str(folder), *options, "--out", str(accuracy)]) == 0
    [row] = json.loads(accuracy.read_text())["rows"]
    slots = OWN[family]["block"]
    assert row["accuracy"][:slots] == pytest.approx(curve[-1]["accuracy"], abs=0.03)
    prompts = ["--data", str(taught.data), "--holdout", "2", "--samples", "1", "--cap", "20"]
    model = ["--set", f"model.path={taught.target}"]
    assert tau(["--drafter", str(folder), *prompts, "--out", str(validation), *model]) == 0
    rows = json.loads(validation.read_text())["rows"]
    assert [(r["method"], r["temperature"]) for r in rows] == [
        (name, t) for t in (0.0, 1.0) for name in presets(folder)
    ]
    assert not any(r["differing"] for r in rows) and rows[0]["tau"]["all"] > 1.2
    measured = ["--accuracy", str(accuracy), "--validation", str(validation)]
    assert card(["--drafter", str(folder), *measured, "--out", str(folder)]) == 0
    text = (folder / "card.md").read_text()
    title = {"eagle": "# EAGLE-3 drafter", "medusa": "# Medusa heads"}[family]
    assert text.startswith(title) and f"| {presets(folder)[0]} | 1 | " in text
    assert "bfloat16" in text


def test_eagle_drafts_over_the_ids_it_was_trained_on(taught, made):
    settings = compose(
        ["drafter=eagle", f"drafter.path={made['eagle'][2]}", f"model.path={taught.target}"]
    ).drafter
    drafter = load_drafter(settings, taught.opened)
    ids = load_state(made["eagle"][1])[0]["vocabulary"]["ids"]
    assert drafter.ids.equal(ids) and drafter.target_layer_ids == (0, 2)


@pytest.mark.parametrize(
    ("family", "changed", "said"),
    [
        ("eagle", {"stage": "head"}, "training.stage=head: correction heads are trained on dflash"),
        ("eagle", {"causal": "true"}, "training.causal=true: only dflash has such blocks"),
        ("medusa", {"vocab": 30}, "training.vocab=30: Medusa's heads draft over the whole"),
    ],
)
def test_settings_that_a_family_has_not(taught, tmp_path, family, changed, said):
    own = {**OWN[family], **changed}
    given = own.pop("stage", None)
    more = [f"training.stage={given}"] if given else []
    with pytest.raises(ConfigError, match=said):
        train(overrides(taught, tmp_path / "training" / "x", family, steps=1, settings=more, **own))


def test_a_start_from_another_family_is_refused(taught, made, tmp_path):
    options = {"steps": 1, "init": made["medusa"][1], **OWN["eagle"]}
    with pytest.raises(UserError, match=r"trained training.family=medusa, not eagle"):
        run(taught, tmp_path / "training" / "x", stage="eagle", **options)
