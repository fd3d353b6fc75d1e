"""Resuming in a folder: only with the same files; missing records are decoded again; code versions
are recorded.
"""

import json

import pytest
from test_run_folder import finished, opened, rounds_of, sample, status

from dartree_exp.records import RecordError, Run
from dartree_exp.records.environment import code_version
from dartree_exp.records.stamps import versions

WEIGHTS = {"target": "a" * 64, "drafter": "b" * 64}


def write(path, names="ab", **options):
    with opened(path, **options) as folder:
        folder.expect(len(names))
        for name in names:
            if (name, 0) not in finished(folder):
                folder.append(sample(name), rounds_of(sample(name)))
        folder.write_summary({"n": len(names)})
        folder.done()
    return folder


@pytest.mark.parametrize("done", [True, False])
def test_other_weights_are_refused_unless_forced(tmp_path, done):
    if done:
        write(tmp_path, inputs=WEIGHTS)
    else:
        with opened(tmp_path, inputs=WEIGHTS) as folder:
            folder.append(sample(), rounds_of(sample()))
    before = status(tmp_path)
    other = {**WEIGHTS, "drafter": "c" * 64}
    with pytest.raises(
        RecordError,
        match=r"other files: drafter \(sha256 bbbbbbbbbbbb then, cccccccccccc now\); set force",
    ):
        opened(tmp_path, inputs=other)
    assert status(tmp_path) == before
    with opened(tmp_path, inputs=WEIGHTS) as folder:
        assert folder.already_done == done and folder.samples()
    with opened(tmp_path, inputs=other, force=True) as folder:
        assert not folder.already_done and not folder.samples()
    assert status(tmp_path)["inputs"] == other


def test_weights_may_change_while_no_sample_was_made_with_them(tmp_path):
    """As after a broken checkpoint was repaired."""
    with opened(tmp_path, inputs=WEIGHTS) as folder:
        folder.fail("the drafter holds NaN")
    with opened(tmp_path, inputs={"target": "d" * 64}):
        assert status(tmp_path)["inputs"] == {"target": "d" * 64}


def test_files_that_were_not_at_hand_are_noted_once_they_are(tmp_path):
    with opened(tmp_path, inputs={}) as folder:
        folder.identify({"target": "a" * 64})
        folder.append(sample(), rounds_of(sample()))
    with (
        opened(tmp_path, inputs={}) as folder,
        pytest.raises(RecordError, match="other files: target"),
    ):
        folder.identify({"target": "e" * 64})
    with pytest.raises(RecordError, match="other files: target"):
        opened(tmp_path, inputs={"target": "e" * 64})


def lines(path):
    return path.read_text().splitlines(keepends=True)


CUTS = {
    "samples cut between lines": (
        "samples.jsonl",
        lambda file: file.write_text(lines(file)[0]),
        {("a", 0)},
    ),
    "samples cut inside a line": (
        "samples.jsonl",
        lambda file: file.write_text(file.read_text()[:-30]),
        {("a", 0)},
    ),
    "samples gone": ("samples.jsonl", lambda file: file.unlink(), set()),
    "rounds cut between lines": (
        "rounds.jsonl",
        lambda file: file.write_text("".join(lines(file)[:-1])),
        {("a", 0)},
    ),
    "rounds cut inside a line": (
        "rounds.jsonl",
        lambda file: file.write_text(file.read_text()[:-30]),
        {("a", 0)},
    ),
    "rounds gone": ("rounds.jsonl", lambda file: file.unlink(), set()),
    "summary gone": ("summary.json", lambda file: file.unlink(), {("a", 0), ("b", 0)}),
}


# A folder of the previous version has only the number of samples.
@pytest.mark.parametrize(
    ("cut", "older"),
    [*((cut, False) for cut in CUTS), *((cut, True) for cut in CUTS if cut.startswith("samples"))],
)
def test_a_done_run_that_lost_records_is_not_done_and_is_completed(tmp_path, cut, older):
    name, damage, left = CUTS[cut]
    write(tmp_path)
    whole = Run(tmp_path)
    assert whole.state == "DONE" and not whole.lost
    if older:
        old = status(tmp_path)
        del old["files"]
        (tmp_path / "status.json").write_text(json.dumps(old))
    damage(tmp_path / name)
    assert Run(tmp_path).state == "INTERRUPTED" and name in Run(tmp_path).lost
    with opened(tmp_path) as folder:
        assert not folder.already_done and finished(folder) == left
        assert name in folder.notes[0] and "decoded again" in folder.notes[0]
    write(tmp_path)
    again = Run(tmp_path)
    assert again.state == "DONE" and not again.lost
    assert again.samples == whole.samples and again.rounds == whole.rounds


def test_rounds_lost_by_a_run_that_was_killed_are_decoded_again(tmp_path):
    with opened(tmp_path) as folder:
        for name in "abc":
            folder.append(sample(name), rounds_of(sample(name)))
    rounds = lines(tmp_path / "rounds.jsonl")
    (tmp_path / "rounds.jsonl").write_text("".join(rounds[:3]))
    with opened(tmp_path) as folder:
        assert finished(folder) == {("a", 0)}
        assert "lacks rounds of 2 samples" in folder.notes[0]
    assert lines(tmp_path / "rounds.jsonl") == rounds[:2]


@pytest.mark.parametrize("planned", [1, 3])
def test_a_run_with_more_or_fewer_samples_than_planned_is_not_done(tmp_path, planned):
    with (
        pytest.raises(RecordError, match=f"has 2 samples, but the run has {planned}"),
        opened(tmp_path) as folder,
    ):
        folder.expect(planned)
        for name in "ab":
            folder.append(sample(name), rounds_of(sample(name)))
        folder.done()
    assert status(tmp_path)["state"] == "FAILED"


def stamp(commit, dirty=False, load=1.0, **more):
    git = {"commit": commit * 40, "dirty": dirty, **({"changes": commit * 64} if dirty else {})}
    return {
        "packages": {"dartree_exp": "0.1.0"},
        "git": git,
        "load": {"start": load, "cores": 2},
        "time": str(load),
        **more,
    }


def test_which_samples_were_made_by_which_code_is_on_record(tmp_path):
    made = iter("abcdef")
    for environment, count in (
        (stamp("a"), 2),
        (stamp("a"), 1),
        (stamp("b"), 0),
        (stamp("c", dirty=True), 2),
    ):
        with opened(tmp_path) as folder:
            folder.write_environment(environment)
            for name in (next(made) for _ in range(count)):
                folder.append(sample(name), rounds_of(sample(name)))
    run = Run(tmp_path)
    assert versions(run.environment, len(run.samples)) == [
        "samples 1 to 3: dartree_exp 0.1.0, commit aaaaaaaaaa",
        "samples 4 to 5: dartree_exp 0.1.0, commit cccccccccc, with changes cccccccccc",
    ]
    assert [old["samples_from"] for old in run.environment["earlier"]] == [0]
    assert code_version({}) == "dartree_exp of an unknown version"


def test_other_changes_of_one_commit_are_another_version(tmp_path):
    one, other = stamp("a", dirty=True), stamp("a", dirty=True)
    other["git"]["changes"] = "f" * 64
    for name, environment in (("a", one), ("b", other)):
        with opened(tmp_path) as folder:
            folder.write_environment(environment)
            folder.append(sample(name), rounds_of(sample(name)))
    assert len(versions(Run(tmp_path).environment, 2)) == 2


def test_a_stamp_starts_no_later_than_the_samples_that_are_left(tmp_path):
    with opened(tmp_path) as folder:
        folder.write_environment(stamp("a"))
        folder.append(sample("a"), rounds_of(sample("a")))
    with opened(tmp_path) as folder:
        folder.write_environment(stamp("b"))
        folder.append(sample("b"), rounds_of(sample("b")))
    (tmp_path / "samples.jsonl").unlink()
    with opened(tmp_path) as folder:
        folder.write_environment(stamp("b"))
    assert (
        Run(tmp_path).environment["samples_from"] == 0
        and "earlier" not in Run(tmp_path).environment
    )


def test_a_done_run_that_lost_its_trees_notes_that_they_are_not_rewritten(tmp_path):
    write(tmp_path)
    whole = Run(tmp_path)
    status_file = tmp_path / "status.json"
    held = json.loads(status_file.read_text())
    held["files"]["trees.jsonl"] = 100
    status_file.write_text(json.dumps(held))
    with opened(tmp_path) as folder:
        assert "trees.jsonl is not rewritten" in folder.notes[0] and "force=true" in folder.notes[0]
        assert finished(folder) == {(s.id, s.turn) for s in whole.samples}
