"""Held-out accuracy: a label that cannot be drafted is a miss, in a run's curve and for an exported
folder alike.
"""

import json

import pytest
import torch
from training_support import run

from dartree_exp.training.batches import Captured, Vocabulary, load_captured
from dartree_exp.training.export import load_run
from dartree_exp.training.export import main as export
from dartree_exp.training.exported import full_head, load_exported, narrow_head
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.validate import ANCHORS, even_anchors, main, validate


@pytest.fixture(scope="module")
def narrow(tiny, tmp_path_factory):
    """A head that drafts over 20 of the text's 30 ids: its run, its exported folder, its curve."""
    root = tmp_path_factory.mktemp("narrow") / "training"
    run(tiny, root / "backbone", steps=60, vocab=20)
    curve = run(tiny, root / "run", stage="head", steps=40, vocab=20, init=root / "backbone")
    paths = ["--run", str(root / "run"), "--data", str(tiny.data), "--target", str(tiny.target)]
    assert export([*paths, "--out", str(root / "out"), "--holdout", "2"]) == 0
    return root, curve


def recount(sample: Captured, vocabulary: Vocabulary, block: int) -> tuple[list[int], list[int]]:
    """(labels, labels inside the drafting vocabulary) per slot of one sample, token by token."""
    all_, inside = [0] * block, [0] * block
    for anchor in even_anchors(sample, ANCHORS).tolist():
        for slot in range(block):
            if anchor + slot + 1 < len(sample.ids):
                all_[slot] += 1
                inside[slot] += int(vocabulary.columns[sample.ids[anchor + slot + 1]] >= 0)
    return all_, inside


def test_labels_outside_the_drafting_vocabulary_count_as_misses(tiny, narrow):
    model, ids, _ = load_run(narrow[0] / "run", tiny.opened)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), 0)
    samples = load_captured(tiny.features, 0, (0, 2))
    result = validate(model.backbone, None, model.feature_scale, samples, vocabulary, 4, ANCHORS)
    counts = [recount(sample, vocabulary, 4) for sample in samples]
    total = [sum(c[0][slot] for c in counts) for slot in range(4)]
    inside = [sum(c[1][slot] for c in counts) for slot in range(4)]
    assert all(0 < i < t for i, t in zip(inside, total, strict=True))
    assert result["coverage"] == [round(i / t, 4) for i, t in zip(inside, total, strict=True)]
    for accuracy, coverage, count in zip(
        result["accuracy"], result["coverage"], total, strict=True
    ):
        assert accuracy <= coverage
        assert accuracy * count == pytest.approx(
            round(accuracy * count), abs=0.02
        )  # hits of all labels
    assert (
        result["accuracy"][0] > 0.5 * result["coverage"][0]
    )  # it learned something, so the counts are not of zeros


def test_the_curve_of_a_run_counts_them_too(tiny, narrow):
    row = narrow[1][-1]
    assert max(row["coverage"]) < 1
    assert all(a <= c for a, c in zip(row["accuracy"], row["coverage"], strict=True))


def test_the_command_measures_an_exported_folder(tiny, narrow, tmp_path, capsys):
    """What is exported has the accuracy of the run's last validation, up to bfloat16 weights."""
    root, curve = narrow
    options = [
        "--features",
        str(tiny.features),
        "--target",
        str(tiny.target),
        "--out",
        str(tmp_path / "a.json"),
    ]
    assert main(["--drafter", str(root / "out"), *options]) == 0
    written = json.loads((tmp_path / "a.json").read_text())
    assert [row["logits"] for row in written["rows"]] == ["backbone alone", "with the head"]
    assert written["rows"][1]["coverage"] == curve[-1]["coverage"]
    assert written["rows"][1]["accuracy"] == pytest.approx(curve[-1]["accuracy"], abs=0.03)
    assert written["rows"][1]["chain"] == pytest.approx(curve[-1]["chain"], abs=0.05)
    assert "tokens per round" in capsys.readouterr().out


def test_a_narrow_head_is_the_full_one_on_its_ids(tiny, narrow):
    model, ids, _ = load_run(narrow[0] / "run", tiny.opened)
    model.head.bind(load_vocabulary(tiny.opened, ids.tolist(), 0).embed)
    again = narrow_head(full_head(model.head, ids, 40), ids, 40)
    assert torch.equal(again.output, model.head.output) and len(again.output) == 20
    exported = load_exported(narrow[0] / "out", tiny.opened)
    assert exported.vocabulary.ids.tolist() == ids.tolist()
    hidden, tokens = torch.randn(3, 4, 32), torch.randint(4, 30, (3, 4))
    torch.testing.assert_close(
        exported.head(hidden, tokens), model.head(hidden, tokens), atol=0.1, rtol=0.05
    )
