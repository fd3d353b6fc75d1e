"""The shape of a static tree, measured on held-out prompts."""

import json

import pytest
from test_edges import toy_drafter

from dartree_exp.assemble import load_parts
from dartree_exp.config import compose
from dartree_exp.training import command
from dartree_exp.training.corpus import Sample
from dartree_exp.training.halves import decode_watched
from dartree_exp.training.rank_paths import Ranks, main
from dartree_exp.trees.rank_paths import greedy_paths, read_paths
from dartree_exp.verify.sampling import Sampler

TOY = ["model=toy", "engine.dtype=fp32", "tree.budget=8"]
SAMPLES = [Sample(f"s{i}", "math", [0, 9, 20 + i, 40, 11], [2]) for i in range(4)]


@pytest.mark.parametrize(("drafter", "first"), [("oracle", 1.0), ("adversarial", 0.0)])
def test_the_accuracies_are_how_often_a_rank_is_right(drafter, first):
    config = compose(["method=ddtree", f"drafter={drafter}", *TOY])
    target, method = load_parts(config)
    ranks = Ranks(3, 4)
    decode_watched(target, method, ranks, SAMPLES, 20, lambda sample: Sampler())
    accuracies = ranks.accuracies()
    assert ranks.seen[0] >= ranks.seen[-1] > 5  # the last roots of a text have less after them
    assert [row[0] for row in accuracies] == [first] * 3
    assert (ranks.hits.sum(1) <= ranks.seen).all()


def test_the_command_writes_a_shape_that_a_run_uses(tmp_path, capsys):
    toy_drafter(tmp_path / "d")
    rows = [{**vars(sample)} for sample in SAMPLES]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = ["--drafter", tmp_path / "d", "--data", tmp_path / "text.jsonl", "--holdout", "4"]
    paths += ["--out", tmp_path / "s.json", "--cap", "20", "--nodes", "9", "--depth", "3"]
    assert command.run(main, [*map(str, paths), "--set", *TOY]) == 0
    written = json.loads((tmp_path / "s.json").read_text())
    shape = read_paths(str(tmp_path / "s.json"))
    assert shape == tuple(greedy_paths(written["accuracies"], 9)) and "4 held-out" in written["how"]
    assert "9 paths" in capsys.readouterr().out
    config = compose(["drafter=random", "tree=static", f"tree.paths={tmp_path / 's.json'}", *TOY])
    target, method = load_parts(config)
    decode_watched(target, method, method.policy, SAMPLES[:1], 8, lambda sample: Sampler())
    chain = [*map(str, paths), "--method", "dspark", "--set", *TOY]
    assert command.run(main, chain) == 2
    assert "it must be marginal" in capsys.readouterr().err
