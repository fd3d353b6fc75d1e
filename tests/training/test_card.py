"""Cards say what the run recorded: machine, prompts kept out, target, objective, measurements of
these very weights.
"""

import json
from types import SimpleNamespace

import pytest
from training_support import CAPTURED, run

from dartree_exp.errors import UserError
from dartree_exp.records.environment import cpu_description
from dartree_exp.training.capture import main as capture
from dartree_exp.training.card import main as card
from dartree_exp.training.card import stages
from dartree_exp.training.card_text import render
from dartree_exp.training.export import main as export
from dartree_exp.training.exported import weights_of
from dartree_exp.training.objective import DSPARK, objective_of, sentences
from dartree_exp.training.provenance import (
    begin_text,
    features_record,
    file_record,
    finish_text,
    target_record,
    text_record,
)
from dartree_exp.training.state import load_state, save_state


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """A text with a record as `generate` leaves it, its features, a backbone and a Markov head,
    both exported.
    """
    root = tmp_path_factory.mktemp("made")
    text, banned, prompts = root / "text.jsonl", root / "bench.jsonl", root / "prompts.jsonl"
    banned.write_text('{"prompt": "a"}\n')
    prompts.write_text('{"id": "a", "domain": "math", "prompt": "b"}\n')
    text.write_bytes(b"")
    excluded = [{**file_record(banned), "count": 1}]
    settings = {"target": target_record(tiny.opened), "cap": 28, "excluded": excluded}
    record = begin_text(text, settings, {**file_record(prompts), "count": 1, "kept_out": 0})
    text.write_bytes(tiny.data.read_bytes())
    finish_text(text, record)
    options = ["--target", str(tiny.target), *CAPTURED]
    assert capture(["--data", str(text), "--out", str(root / "features"), *options]) == 0
    here = SimpleNamespace(target=tiny.target, data=text, features=root / "features", root=root)
    run(here, root / "training" / "backbone", steps=4)
    init = root / "training" / "backbone"
    run(here, root / "training" / "head", stage="head", head="markov", steps=4, init=init)
    for name in ("backbone", "head"):
        paths = [
            "--run",
            str(root / "training" / name),
            "--data",
            str(text),
            "--target",
            str(tiny.target),
        ]
        assert export([*paths, "--out", str(root / f"{name}_out")]) == 0
    return here


def settings(head):
    terms = {"ce": 1.0, "l1": 0.0, "kl": 0.0, "rkl": 0.0, "length_width": 0}
    terms |= {"rkl_temperature": 1.0, "rkl_clip": 0.01}
    return SimpleNamespace(stage="head", head=head, gamma=4.0, schedule="linear", **terms)


def written(made, name="head_out"):
    return json.loads((made.root / name / "card.json").read_text()), (
        made.root / name / "card.md"
    ).read_text()


def test_the_machine_is_the_recorded_one(made, tmp_path):
    values, text = written(made)
    cpu = cpu_description()
    assert [stage["machines"][0]["cpu"] for stage in values["stages"]] == [cpu, cpu]
    assert f"{cpu['model']} ({cpu['cores']} cores)" in text and "not recorded" not in text
    tensors, meta = load_state(made.root / "training" / "backbone")
    for key in ("machines", "data", "objective"):  # a run of an older version
        del meta[key]
    save_state(tmp_path / "old", tensors, meta)
    (tmp_path / "old" / "curve.jsonl").write_text(
        (made.root / "training" / "backbone" / "curve.jsonl").read_text()
    )
    paths = [
        "--run",
        str(tmp_path / "old"),
        "--data",
        str(made.data),
        "--target",
        str(made.target),
        "--holdout",
        "2",
    ]
    assert export([*paths, "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "card.md").read_text()
    assert "on a machine that was not recorded" in text and cpu["model"] not in text
    assert "which prompts were kept out of it, is not recorded" in text
    assert "the run did not record it" in text


def test_a_resumed_old_run_does_not_claim_this_machine_for_all_of_it(made, tmp_path):
    tensors, meta = load_state(made.root / "training" / "backbone")
    del meta["machines"]
    save_state(tmp_path / "training" / "old", tensors, meta)
    run(made, tmp_path / "training" / "old", steps=6)
    assert stages(tmp_path / "training" / "old")[0]["machines"] is None


def test_prompts_kept_out_are_those_of_the_named_files(made):
    text = written(made)[1]
    assert (
        "Prompts kept out of the text: compared by text, case and white space aside, with "
        "`bench.jsonl`" in text
    )
    assert (
        "Generated greedily by the target (target), at most 28 new tokens, from the prompts of "
        "`prompts.jsonl` (1)" in text
    )
    assert str(made.root) not in text + json.dumps(written(made)[0])


def test_the_title_says_what_the_weights_are(made):
    assert written(made)[1].startswith(
        "# Markov correction head (DSpark) with a block-diffusion backbone (DFlash)\n"
    )
    text = written(made, "backbone_out")[1]
    assert text.startswith("# Block-diffusion backbone (DFlash)\n") and "corrects nothing" in text


def test_the_objective_comes_from_the_run(made):
    values, text = written(made)
    assert values["stages"][1]["objective"] == objective_of(settings("markov"))
    assert (
        "This run differs in the loss, the schedule." in text
    )  # no gamma is published for blocks of 4
    assert (
        "Objective: cross-entropy of the corrected logits (weight 1) + binary cross-entropy" in text
    )


def test_what_differs_from_the_published_objective_is_named():
    mine = objective_of(settings("markov_rnn"))
    assert sentences(mine, "markov_rnn", 16).endswith(
        "This run differs in the loss, gamma, the schedule."
    )
    assert "exp(-k/7)" in sentences(mine, "markov_rnn", 16) and "0.9" in sentences(
        mine, "markov_rnn", 16
    )
    assert sentences({**mine, **DSPARK, "gamma": 7.0}, "markov_rnn", 16).endswith(
        "This run has the same."
    )
    assert "Published" not in sentences(mine, "gru", 16)


def test_only_a_finished_text_has_a_record(made, tmp_path):
    assert text_record(made.data)["cap"] == 28
    copy = tmp_path / "text.jsonl"
    copy.write_bytes(made.data.read_bytes())
    assert text_record(copy) is None
    (tmp_path / "text.jsonl.about.json").write_bytes(
        (made.root / "text.jsonl.about.json").read_bytes()
    )
    assert text_record(copy) is not None
    copy.write_bytes(made.data.read_bytes() + b"\n")
    assert text_record(copy) is None


def test_a_text_is_not_continued_with_other_prompts_kept_out(made):
    with pytest.raises(UserError, match="was begun with other settings: excluded"):
        begin_text(made.data, {"excluded": []}, {"file": "p", "sha256": "0", "count": 1})


def test_a_text_without_a_record_does_not_get_one(tiny, tmp_path):
    (tmp_path / "old.jsonl").write_text("{}\n")
    assert begin_text(tmp_path / "old.jsonl", {}, {"sha256": "0"}) is None
    assert [p.name for p in tmp_path.iterdir()] == ["old.jsonl"]


def test_features_of_another_text_are_not_mixed_in(made, tiny):
    options = ["--target", str(tiny.target), *CAPTURED]
    with pytest.raises(UserError, match="was begun with other settings: seed = 0, now 1"):
        capture(["--data", str(made.data), "--out", str(made.features), *options, "--seed", "1"])
    assert features_record(made.features)["seed"] == 0


def test_the_held_out_samples_are_the_captured_ones(made):
    from dartree_exp.training.batches import load_captured

    held = {s.name for s in load_captured(made.features, 0, (0, 2))}
    assert set(written(made)[0]["data"]["held_out"]) == held


def test_measurements_of_other_weights_are_refused(made, tmp_path):
    folder, measured = made.root / "head_out", tmp_path / "accuracy.json"
    row = {"logits": "with the head", "accuracy": [0.25], "coverage": [0.75], "chain": 1.25}
    measured.write_text(json.dumps({"how": "So.", "weights": ["0" * 64], "rows": [row]}))
    command = [
        "--drafter",
        str(folder),
        "--accuracy",
        str(measured),
        "--out",
        str(tmp_path / "card"),
    ]
    with pytest.raises(
        UserError, match=r"was not measured on these weights; run training.validate"
    ):
        card(command)
    assert not (tmp_path / "card").exists()
    measured.write_text(json.dumps({"how": "So.", "weights": weights_of(folder), "rows": [row]}))
    assert card([*command, "--quote", "It is."]) == 0
    text = (tmp_path / "card" / "card.md").read_text()
    assert "| with the head | 1.25 | 0.250 |" in text and "| coverage | | 0.750 |" in text
    assert 'According to the README of the text: "It is."' in text
    assert "## Held-out accuracy" not in (folder / "card.md").read_text()


def test_a_curve_by_the_old_rule_is_called_so(made):
    values, text = written(made)
    assert "counts only labels inside the drafting vocabulary" not in text
    for row in values["stages"][1]["curve"]:
        del row["coverage"]
    assert render(values).count("counts only labels inside the drafting vocabulary") == 1


@pytest.mark.parametrize(
    "name", ["smollm2_135m", "smollm2_135m_markov", "smollm2_135m_gated", "smollm2_135m_rnn"]
)
def test_shipped_cards_are_rendered_from_their_records(name):
    from dartree_exp.drafters.locate import locate

    folder = locate(f"pkg://dartree_exp.drafters/weights/{name}")
    values, text = json.loads((folder / "card.json").read_text()), (folder / "card.md").read_text()
    assert text == render(values)
    assert (
        values["accuracy"]["weights"] == weights_of(folder)
        and values["weights"]["sha256"] == weights_of(folder)[-1]
    )
    assert (
        "2-core" not in text and "a machine that was not recorded" in text and "export2" not in text
    )
    assert ("This run differs in the loss, gamma, the schedule." in text) == (
        name != "smollm2_135m"
    )


def test_a_domain_whose_answers_had_no_rounds_is_called_so(made):
    values = written(made)[0]
    row = {"method": "dflash", "tau": {"all": 1.5, "math": 1.5}, "survival": [0.5]}
    values["validation"] = {
        "how": "So.",
        "domains": ["chat", "math"],
        "rows": [row],
        "weights": ["0"],
    }
    assert "| dflash | 0 | 1.50 | no rounds | 1.50 |" in render(values)
