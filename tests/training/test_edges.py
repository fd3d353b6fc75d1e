"""The calibration of edges: the fit on made-up edges, the file, the command on a tiny drafter."""

import json

import numpy as np
import pytest
from test_calibrate import toy_drafter

from dartree_exp.assemble import load_parts
from dartree_exp.config import compose
from dartree_exp.drafters.dflash.backbone_ref import EDGES
from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.runs.environment import environment
from dartree_exp.runs.warm_up import Machine
from dartree_exp.training import command
from dartree_exp.training.edges import main
from dartree_exp.training.reliability import fit_platt


@pytest.mark.parametrize("truth", [(1.0, 0.0), (0.65, -0.45), (1.6, 0.8)])
def test_the_true_pair_is_found(truth):
    rng = np.random.default_rng(0)
    logit = rng.normal(-1.0, 2.5, 40_000)
    happened = rng.random(40_000) < 1 / (1 + np.exp(-(truth[0] * logit + truth[1])))
    log_q = -np.logaddexp(0, -logit)
    assert fit_platt(log_q, happened.astype(float)) == pytest.approx(truth, abs=0.06)


@pytest.mark.parametrize("always", [0.0, 1.0])
def test_edges_that_all_end_alike_give_a_finite_pair(always):
    a, b = fit_platt(np.log([0.2, 0.5, 0.9]), np.full(3, always))
    assert 0 < a < 10 and np.isfinite(b) and (b > 0) == (always == 1.0)


def held_out(tmp_path):
    """Arguments for a drafter in `d` and four prompts, written here."""
    rows = [
        {"id": f"s{i}", "domain": "math", "prompt_ids": [0, 9, 20 + i, 40, 11], "output_ids": [2]}
        for i in range(4)
    ]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = ["--drafter", tmp_path / "d", "--data", tmp_path / "text.jsonl"]
    paths += ["--out", tmp_path / "e.json", "--holdout", "4", "--samples", "4", "--cap", "12"]
    return list(map(str, paths))


def calibrated(tmp_path, *options):
    settings = ["--set", "model=toy", "engine.dtype=fp32", "tree.budget=8"]
    return command.run(main, [*held_out(tmp_path), *options, *settings])


def test_the_command_writes_what_loading_reads_and_the_policy_uses(tmp_path, capsys):
    target = toy_drafter(tmp_path / "d")
    assert load_drafter(tmp_path / "d", target).edge_pairs == {}
    assert calibrated(tmp_path) == 0
    written = json.loads((tmp_path / "e.json").read_text())
    assert {scorer: set(pairs) for scorer, pairs in written["pairs"].items()} == {
        "conditional": {"0", "1"},
        "lattice": {"0", "1"},
        "marginal": {"0", "1"},
    }
    said = written["judged"]["conditional"]["0"]
    assert {"ece_before", "ece_after", "ece_noise"} <= set(said)
    assert capsys.readouterr().out.count("\n") == 7
    (tmp_path / "d" / EDGES).write_bytes((tmp_path / "e.json").read_bytes())
    pairs = load_drafter(tmp_path / "d", target).edge_pairs
    assert list(pairs["marginal"][1.0]) == written["pairs"]["marginal"]["1"]

    chosen = ["model=toy", "drafter=dspark", f"drafter.path={tmp_path / 'd'}", "engine.dtype=fp32"]
    for scorer in ("conditional", "marginal"):
        made = load_parts(compose([*chosen, f"tree.scoring={scorer}"]))
        assert made[1].policy.edges.at(1.0) == pairs[scorer][1.0]
        recorded = environment(*made, Machine(1))["edge_calibration"]
        assert recorded["0"] == written["pairs"][scorer]["0"]


def test_further_pairs_of_the_same_weights_are_added_and_others_replaced(tmp_path):
    toy_drafter(tmp_path / "d")
    assert calibrated(tmp_path, "--scorers", "conditional", "--temperatures", "0") == 0
    first = json.loads((tmp_path / "e.json").read_text())
    assert calibrated(tmp_path, "--scorers", "conditional", "--temperatures", "1") == 0
    both = json.loads((tmp_path / "e.json").read_text())
    assert both["pairs"]["conditional"]["0"] == first["pairs"]["conditional"]["0"]
    assert set(both["pairs"]["conditional"]) == {"0", "1"}
    (tmp_path / "e.json").write_text(json.dumps(both | {"weights_sha256": "0" * 64}))
    assert calibrated(tmp_path, "--scorers", "marginal", "--temperatures", "1") == 0
    assert set(json.loads((tmp_path / "e.json").read_text())["pairs"]) == {"marginal"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ('{"pairs": {}, "weights_sha256": "00"}', "other weights"),
        ('{"pairs": {"conditional": {"0": [1, 0, 3]}}}', r"\[a, b\]"),
        ('{"pairs": {"conditional": {"0": [-1, 0]}}}', r"\[a, b\] with a > 0"),
        ('{"pairs": {"conditional": {"0": [1, NaN]}}}', "edges.json"),
        ('{"pairs": {"conditional": {"warm": [1, 0]}}}', r"\[a, b\]"),
        ('{"pairs": {"conditional": {"-1": [1, 0]}}}', "temperature"),
        ('{"pairs": [1]}', r"\[a, b\]"),
        ("{}", r"\[a, b\]"),
        ('{"pairs": {}, "coupled": {"marginal": {"1": [1, 0]}}}', r"\[temper, spread\], both > 0"),
    ],
)
def test_a_stale_or_damaged_file_is_refused(tmp_path, content, said):
    target = toy_drafter(tmp_path / "d")
    (tmp_path / "d" / EDGES).write_text(content)
    with pytest.raises(CheckpointError, match=said):
        load_drafter(tmp_path / "d", target)


def test_a_drafter_without_calibration_says_so(tmp_path):
    toy_drafter(tmp_path / "d")
    made = load_parts(compose(["model=toy", "drafter=dspark", f"drafter.path={tmp_path / 'd'}"]))
    assert environment(*made, Machine(1))["edge_calibration"] == "uncalibrated"
    assert made[1].policy.edges.at(0.5) == (1.0, 0.0)
