"""Coupled drafting is fitted to a drafter: the fit on made-up positions, the file, the command."""

import json

import numpy as np
import pytest
from test_calibrate import toy_drafter
from test_edges import calibrated, held_out

from dartree_exp.assemble import load_parts
from dartree_exp.config import compose
from dartree_exp.drafters.dflash.backbone_ref import EDGES
from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.training import command
from dartree_exp.training.temper import Reached, fit_coupling, judged, main


def made_up(temper, spread, count=8_000, seed=0):
    """Positions whose target draws with Gumbel errors of scale `spread` around log q / temper."""
    rng = np.random.default_rng(seed)
    log_q, noise = 2.0 * rng.normal(size=(count, 12)), rng.gumbel(size=(count, 12))
    error = spread * rng.gumbel(size=(count, 12))
    return Reached(log_q, noise, (log_q / temper + noise + error).argmax(axis=1), 0)


@pytest.mark.parametrize("truth", [(1.0, 1.0), (1.4, 0.5), (0.8, 1.6)])
def test_the_true_pair_is_found(truth):
    pair = fit_coupling(made_up(*truth))
    assert pair == pytest.approx(truth, rel=0.06)
    said = judged(made_up(*truth, seed=1), pair)
    assert said["loss_after"] <= said["loss_before"] + 0.001
    assert said["right_after"] > said["right_uncoupled"] + 0.05


def test_noise_that_is_not_the_target_s_gets_no_weight():
    """Control: with noise of another seed the fit leaves the noise out."""
    other = made_up(1.0, 1.0)
    shuffled = Reached(other.log_q, other.noise[::-1], other.chosen, 0)
    temper, spread = fit_coupling(shuffled)
    assert spread > 20 and temper * spread == pytest.approx(1 / np.log(2) * 1.2, rel=0.3)


def test_one_position_gives_a_finite_pair():
    few = made_up(1.0, 1.0, count=1)
    assert np.isfinite(fit_coupling(few)).all()


def tempered(tmp_path, *options):
    settings = ["--set", "model=toy", "engine.dtype=fp32", "tree.budget=8"]
    return command.run(main, [*held_out(tmp_path), *options, *settings])


def test_the_command_writes_what_loading_reads_and_coupled_trees_use(tmp_path, capsys):
    target = toy_drafter(tmp_path / "d")
    assert tempered(tmp_path, "--temperatures", "1", "0.7") == 0
    assert capsys.readouterr().out.count("\n") == 7
    written = json.loads((tmp_path / "e.json").read_text())
    assert {scorer: set(pairs) for scorer, pairs in written["coupled"].items()} == {
        "conditional": {"0.7", "1"},
        "lattice": {"0.7", "1"},
        "marginal": {"0.7", "1"},
    }
    assert written["pairs"] == {}
    assert written["coupled_judged"]["marginal"]["1"]["missed"] < 1
    (tmp_path / "d" / EDGES).write_bytes((tmp_path / "e.json").read_bytes())
    pairs = load_drafter(tmp_path / "d", target).coupled_pairs
    assert list(pairs["marginal"][1.0]) == written["coupled"]["marginal"]["1"]
    chosen = ["model=toy", "drafter=dspark", f"drafter.path={tmp_path / 'd'}", "engine.dtype=fp32"]
    method = load_parts(compose([*chosen, "tree.coupled=true", "decoding.temperature=1"]))[1]
    assert method.policy.edges.at(1.0) == (1.0, 0.0)  # coupled scores are chances already


def test_both_fits_share_a_file(tmp_path):
    toy_drafter(tmp_path / "d")
    some = "--scorers", "marginal", "--temperatures", "1"
    assert tempered(tmp_path, *some) == calibrated(tmp_path, *some) == 0
    both = json.loads((tmp_path / "e.json").read_text())
    assert set(both["pairs"]) == set(both["coupled"]) == {"marginal"}
    assert tempered(tmp_path, *some) == 0
    again = json.loads((tmp_path / "e.json").read_text())
    assert again == both


def test_a_second_fit_starts_from_the_drafter_as_trained(tmp_path):
    """What was fitted before is not applied twice."""
    toy_drafter(tmp_path / "d")
    some = "--scorers", "conditional", "--temperatures", "1"
    assert tempered(tmp_path, *some) == 0
    first = json.loads((tmp_path / "e.json").read_text())
    (tmp_path / "d" / EDGES).write_bytes((tmp_path / "e.json").read_bytes())
    assert tempered(tmp_path, *some) == 0
    assert json.loads((tmp_path / "e.json").read_text())["coupled"] == first["coupled"]
