"""Recorded trees: branches of a path, content of a line, and folders with and without trees."""

import json

import pytest

from dartree_exp.records import RecordError, Run, RunFolder, TreeRecord
from dartree_exp.records.trees import branches
from sample_records import recorded_run, sample, write_run

#        0: root, children 1 2 3; node 2 has children 4 5
PARENTS = [-1, 0, 0, 0, 2, 2]


def test_places_among_siblings_follow_the_scores_and_ties_the_index():
    assert branches(PARENTS, [0, -3.0, -1.0, -1.0, -2.0, -1.5], [0, 2, 5]) == ([0, 0], [3, 2, 0])
    assert branches(PARENTS, [0, -0.5, -1.0, -1.0, -2.0, -2.5], [0, 2, 5]) == ([1, 1], [3, 2, 0])
    assert branches(PARENTS, [0, -0.5, -1.0, -1.0, -2.0, -2.5], [0, 3]) == ([2], [3, 0])
    assert branches([-1], [0.0], [0]) == ([], [0])


def test_a_folder_gives_back_its_trees(tmp_path):
    run = Run(recorded_run(tmp_path / "run"))
    assert [tree.round for tree in run.trees] == [0, 1, 2]
    tree = run.trees[1]
    assert tree.children() == [[1, 4], [2], [3, 5], [], [6], [], []]
    assert tree.text(12) == " w2" and tree.text(1234) == "<1234>"
    assert TreeRecord.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree


def test_older_folders_without_trees_or_branches_stay_readable(tmp_path):
    path = recorded_run(tmp_path / "run")
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        del line["accepted_places"], line["path_children"]
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "trees.jsonl").unlink()
    run = Run(path)
    assert run.trees == [] and [r.accepted_places for r in run.rounds] == [None] * 3


def test_trees_of_a_sample_that_never_came_are_removed_on_resume(tmp_path):
    def stop(folder):
        folder._end("INTERRUPTED", "")

    path = recorded_run(tmp_path / "run", end=stop)
    orphan = json.loads((path / "trees.jsonl").read_text().splitlines()[0]) | {"id": "b"}
    with open(path / "trees.jsonl", "a") as file:
        file.write(json.dumps(orphan) + "\n" + '{"id": "half')
    with RunFolder.open(path, (path / "config.yaml").read_text(), "hash of run"):
        assert [
            json.loads(line)["id"] for line in (path / "trees.jsonl").read_text().splitlines()
        ] == ["a"] * 3


def test_a_stranger_s_tree_is_refused_and_force_removes_all(tmp_path):
    path = recorded_run(tmp_path / "run")
    [tree, *_] = Run(path).trees
    with RunFolder.open(path, "{}", "hash of run", force=True) as folder:
        assert not (path / "trees.jsonl").exists()
        with pytest.raises(RecordError, match="do not match it"):
            folder.append(sample("b", []), trees=[tree])
    write_run(tmp_path / "other", [sample("a", [2])])
    assert not (tmp_path / "other" / "trees.jsonl").exists()
