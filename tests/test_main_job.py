"""The main job on the real model and the shipped drafter, small enough for every machine."""

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.config.load import to_yaml
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.reader import Run
from dartree_exp.run import run


@pytest.mark.real_model
@pytest.mark.parametrize("law", ["greedy", "sample"])
def test_dartree_on_the_embedded_model(embedded_model, tmp_path, law):
    overrides = [
        "benchmark.limit=1",
        "benchmark.categories=[math]",
        "decoding.max_new_tokens=20",
        "engine.dtype=fp32",
        "budget.costs=[[1,26.5],[17,42.0],[65,85.0]]",  # the same trees on every machine
        "budget.overhead=9",
    ]
    config = compose([*overrides, f"decoding={law}"])
    with RunFolder.open(tmp_path / "run", to_yaml(config), config_hash(config)) as folder:
        run(config, folder)
    (sample,) = Run(tmp_path / "run").samples
    assert sample.verdict == "exact" and sample.method == "domino+pruned(conditional)+cost_aware"
    assert sample.rounds < sample.emitted - 1, "the shipped drafter must save rounds"
    rounds = Run(tmp_path / "run").rounds
    assert all(r.supertree_size > r.tree_size for r in rounds)
    assert max(r.tree_size for r in rounds) > 1 and len({r.tree_size for r in rounds}) > 1
