"""Sequential Temperature Scaling: the fit on made-up confidences, and the command on a tiny
drafter.
"""

import json

import numpy as np
import pytest
import torch

from dartree_exp.drafters.dflash.checkpoint import load_drafter, save_drafter
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.calibration import CALIBRATION
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.models.toy import toy_target
from dartree_exp.training import command
from dartree_exp.training.calibrate import main
from dartree_exp.training.reliability import (
    calibration_noise,
    expected_calibration_error,
    fit_temperatures,
    reliability,
    survival,
    survived,
)


def rounds(temperatures: list[float], count: int = 40_000, seed: int = 0):
    """Logits and accepted drafts of rounds whose true acceptance is sigmoid(logit / temperature)
    per depth.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 2.0, (count, len(temperatures)))
    kept = rng.random(logits.shape) < 1 / (1 + np.exp(-logits / np.array(temperatures)))
    return logits, np.cumprod(kept, axis=1).sum(axis=1)


def test_the_true_temperatures_are_found_in_order():
    truth = [2.0, 0.5, 3.0]
    logits, accepted = rounds(truth)
    fitted = fit_temperatures(logits, accepted)
    assert fitted == pytest.approx(truth, rel=0.2)
    happened = survived(accepted, 3)
    for depth in range(3):
        before = expected_calibration_error(
            survival(logits, np.ones(3))[:, depth], happened[:, depth]
        )
        after = expected_calibration_error(survival(logits, fitted)[:, depth], happened[:, depth])
        assert after < 0.02 < before


def test_what_is_calibrated_stays():
    logits, accepted = rounds([1.0, 1.0])
    assert fit_temperatures(logits, accepted) == pytest.approx([1.0, 1.0], rel=0.15)


def test_a_depth_is_fitted_on_the_product_and_not_alone():
    """Control: with the first temperature wrong, the second one compensates; a fit of each depth
    alone would not.
    """
    logits, accepted = rounds([2.0, 1.0])
    logits[:, 0] = 8.0  # sure of a draft that is kept two times in three
    second = fit_temperatures(logits, accepted)[1]
    alone = fit_temperatures(logits[accepted >= 1][:, 1:], accepted[accepted >= 1] - 1)[0]
    assert alone == pytest.approx(1.0, rel=0.2) and second != pytest.approx(alone, rel=0.05)


def test_calibration_error_by_hand():
    predicted, happened = np.array([0.1, 0.12, 0.9, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    assert expected_calibration_error(predicted, happened, bins=2) == pytest.approx(
        (2 * 0.39 + 2 * 0.05) / 4
    )
    x, y, counts = reliability(predicted, happened, bins=2)
    assert (x.tolist(), y.tolist(), counts.tolist()) == (
        [pytest.approx(0.11), pytest.approx(0.95)],
        [0.5, 1.0],
        [2, 2],
    )
    assert expected_calibration_error(np.array([0.5]), np.array([1.0])) == pytest.approx(0.5)


def test_the_noise_of_a_calibrated_head_is_told_apart_from_a_miscalibrated_one():
    logits, accepted = rounds([1.0], count=600)
    predicted, happened = survival(logits, np.ones(1))[:, 0], survived(accepted, 1)[:, 0]
    noise = calibration_noise(predicted)
    assert 0.03 < noise < 0.06 and expected_calibration_error(predicted, happened) < 1.5 * noise
    assert expected_calibration_error(survival(logits, np.array([4.0]))[:, 0], happened) > 2 * noise
    assert (
        calibration_noise(np.repeat(predicted, 16)) < 0.3 * noise
    )  # sixteen times the rounds: a quarter of it


def toy_drafter(folder, confident: bool = True):
    """A random drafter of the toy target, in DeepSpec's layout."""
    target = toy_target("llama")
    config = DFlashConfig(
        hidden_size=target.hidden_size, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, vocab_size=target.vocab_size, block_size=4,
        mask_token_id=3,
        target_layer_ids=(0,), num_target_layers=target.num_layers, shift_label=True,
        max_position_embeddings=256,
    )  # fmt: skip
    torch.manual_seed(0)
    head = MarkovHead(config.hidden_size, config.vocab_size, 4)
    confidence = ConfidenceHead(config.hidden_size, 4) if confident else None
    save_drafter(folder, DFlashBackbone(config), head, confidence=confidence)
    return target


def calibrated(tmp_path, *options):
    rows = [
        {"id": f"s{i}", "domain": "math", "prompt_ids": [0, 9, 20 + i, 40, 11], "output_ids": [2]}
        for i in range(4)
    ]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["--set", "model=toy", "--holdout", "4", "--samples", "4", "--cap", "12"]
    paths = [
        "--drafter",
        str(tmp_path / "d"),
        "--data",
        str(tmp_path / "text.jsonl"),
        "--out",
        str(tmp_path / "t.json"),
    ]
    return command.run(main, [*paths, *options, *settings])


def test_the_command_writes_what_loading_reads(tmp_path, capsys):
    target = toy_drafter(tmp_path / "d")
    assert calibrated(tmp_path, "--diagram", str(tmp_path / "reliability.png")) == 0
    assert not (tmp_path / "d" / CALIBRATION).exists()  # written where told, and nowhere else
    written = json.loads((tmp_path / "t.json").read_text())
    (tmp_path / "d" / CALIBRATION).write_bytes((tmp_path / "t.json").read_bytes())
    assert {
        len(written[key]) for key in ("temperatures", "ece_before", "ece_after", "ece_noise")
    } == {4}
    assert written["rounds"]["fitted"] > 5 and written["rounds"]["judged"] > 5
    assert (tmp_path / "reliability.png").read_bytes()[:4] == b"\x89PNG"
    assert "ECE before" in capsys.readouterr().out
    drafter = load_drafter(tmp_path / "d", target)
    assert drafter.confidence.temperatures.tolist() == pytest.approx(written["temperatures"])
    # Again from the calibrated drafter: the head's own logits are what is fitted, so nothing
    # changes.
    assert calibrated(tmp_path) == 0
    assert json.loads((tmp_path / "t.json").read_text()) == written


def test_a_drafter_without_the_head_is_refused(tmp_path, capsys):
    toy_drafter(tmp_path / "d", confident=False)
    assert calibrated(tmp_path) == 2
    assert "no confidence head" in capsys.readouterr().err
    assert not (tmp_path / "d" / CALIBRATION).exists()
