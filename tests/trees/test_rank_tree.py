"""Static trees: the nodes that the paths name, cuts, the greedy shape, and refusals."""

import json
from itertools import combinations, product

import pytest
import torch
from tree_support import paths, scorer

from dartree_exp.config import compose
from dartree_exp.errors import ConfigError
from dartree_exp.inputs.checks import check_files
from dartree_exp.interfaces import Limits
from dartree_exp.trees.rank_paths import expected_length, greedy_paths, read_paths, shipped
from dartree_exp.trees.rank_tree import RankTreeBuilder

SHAPE = [(0,), (1,), (0, 0), (3,), (0, 2), (1, 1), (0, 2, 1), (3, 0), (0, 0, 0), (3, 0, 4)]


def child(made, state, depth, rank):
    """Token and log-probability of the rank-th best child, by a whole sort; and its state."""
    row = made.score(state, depth)[0]
    order = sorted(range(len(row)), key=lambda i: (-float(row[i]), i))
    token, step = int(made.candidates(depth)[order[rank]]), float(row[order[rank]])
    index = torch.tensor([0]), torch.tensor([token])
    return token, step, made.advance(state, depth, *index) if depth < made.num_drafts else None


def by_definition(made, shape):
    found = {}
    for ranks in shape:
        state, path, score = made.start(), [], 0.0
        for depth, rank in enumerate(ranks, start=1):
            token, step, state = child(made, state, depth, rank)
            path.append(token)
            score += step
        found[tuple(path)] = score
    return found


@pytest.mark.parametrize("scoring", ["marginal", "conditional"])
def test_every_path_is_the_child_of_its_rank(scoring):
    made = scorer(scoring, 0, 4, 9)
    tree = RankTreeBuilder(SHAPE).build(made, Limits(4, 63)).validate(63)
    found, expected = paths(tree), by_definition(made, SHAPE)
    assert found.keys() == expected.keys() and len(found) == len(SHAPE)
    for path, score in expected.items():
        assert found[path] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("nodes", range(len(SHAPE) + 1))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_cut_takes_the_first_paths_that_fit(nodes, depth):
    made = scorer("conditional", 1, 3, 9)
    left = [path for path in SHAPE if len(path) <= depth][:nodes]
    tree = RankTreeBuilder(SHAPE).build(made, Limits(depth, nodes)).validate(nodes)
    assert paths(tree).keys() == by_definition(made, left).keys()


def test_ranks_that_no_parent_has_are_left_out_with_all_below():
    made = scorer("conditional", 2, 3, 3)  # three ids
    tree = RankTreeBuilder(SHAPE).build(made, Limits(3, 63)).validate(63)
    left = [path for path in SHAPE if max(path) < 3]
    assert paths(tree).keys() == by_definition(made, left).keys()


ACCURACIES = [[0.5, 0.2, 0.25], [0.6, 0.1, 0.05], [0.4, 0.3, 0.0]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_greedy_shape_accepts_most(count):
    """Brute force over all prefix-closed sets of paths."""
    every = [path for d in (1, 2, 3) for path in product(range(3), repeat=d)]
    closed = (
        chosen
        for chosen in combinations(every, count)
        if all(path[:-1] in chosen for path in chosen if len(path) > 1)
    )
    best = max(expected_length(ACCURACIES, chosen) for chosen in closed)
    made = greedy_paths(ACCURACIES, count)
    assert len(made) == count and expected_length(ACCURACIES, made) == pytest.approx(best)
    assert made == greedy_paths(ACCURACIES, 39)[:count], "a smaller budget takes the first paths"


def test_no_more_paths_than_there_are():
    assert len(greedy_paths(ACCURACIES, 1000)) == 39
    with pytest.raises(ValueError, match="must be probabilities"):
        greedy_paths([[1.2]], 3)


def test_the_shipped_shapes_are_what_the_rule_makes_of_their_accuracies():
    assert shipped()
    for name in shipped():
        shape = read_paths(name)
        from dartree_exp.trees.rank_paths import paths_file

        said = json.loads(paths_file(name).read_text())
        assert shape == tuple(greedy_paths(said["accuracies"], len(shape))) and said["how"]
        assert len(shape) == 63 and max(map(len, shape)) <= 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"paths": [[0], [1, 0]]}', r"path \[1, 0\] comes before the path above it"),
        ('{"paths": [[0], [0]]}', r"path \[0\] is there twice"),
        ('{"paths": [[0], []]}', "must be a list of lists of ranks"),
        ('{"paths": [[-1]]}', "must be a list of lists of ranks"),
        ('{"paths": [[true]]}', "must be a list of lists of ranks"),
        ("{}", "must be a list of lists of ranks"),
        ("[[0]]", "not a JSON object"),
    ],
)
def test_a_file_that_is_no_tree_is_refused_before_a_model_loads(tmp_path, content, message):
    file = tmp_path / "shape.json"
    file.write_text(content)
    config = compose(["model=toy", "method=medusa", f"tree.paths={file}"])
    with pytest.raises(ConfigError, match=rf"^tree\.paths={file}: .*{message}"):
        check_files(config)


def test_an_unknown_shape_is_refused_and_other_trees_do_not_read_it():
    unknown = ["model=toy", "tree.paths=mc_sim_7b_63"]
    with pytest.raises(ConfigError, match=r"tree\.paths=mc_sim_7b_63: must be one of smollm2"):
        check_files(compose([*unknown, "tree=static"]))
    check_files(compose([*unknown, "tree=heap"]))
