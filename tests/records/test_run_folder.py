"""The run folder survives crashes, resumes where it stopped, and belongs to one process."""

import json
import os

import pytest

from dartree_exp.records import (
    RecordError,
    RoundRecord,
    Run,
    RunFolder,
    SampleRecord,
    find_runs,
)


def sample(id="p1", turn=0, **changes):
    fields = dict(
        id=id,
        category="math",
        turn=turn,
        prompt_sha256="ab" * 32,
        prompt_tokens=9,
        method="dartree_pruned",
        ids=[5, 6, 7, 8],
        text="four",
        finish="eos",
        ar_ids=[5, 6, 7, 8],
        verdict="exact",
        emitted=4,
        rounds=2,
        acceptance_lengths=[2, 3],
        emitted_per_round_counts=[2, 1],
        time={"prefill": 0.1, "decode": 0.2},
        ar={"emitted": 4, "prefill": 0.1, "decode": 0.4},
    )
    return SampleRecord(**fields | changes)


def rounds_of(record):
    return [
        RoundRecord(
            id=record.id,
            turn=record.turn,
            round=index,
            start=9,
            root=1,
            accepted=list(range(1, advanced)),
            accepted_tokens=[4] * (advanced - 1),
            accepted_ranks=[0] * (advanced - 1),
            bonus=3,
            tree_size=8,
            supertree_size=20,
            tree_depth=4,
            tokens_advanced=advanced,
            emitted=emitted,
        )
        for index, (advanced, emitted) in enumerate(
            zip(record.acceptance_lengths, record.emitted_per_round_counts, strict=True)
        )
    ]


def finished(folder):
    """(id, turn) of the samples on disk."""
    return {(sample.id, sample.turn) for sample in folder.samples()}


def opened(path, **options):
    return RunFolder.open(path, "tree:\n  budget: 8\n", "hash1", **options)


def status(path):
    return json.loads((path / "status.json").read_text())


def test_a_run_writes_everything_and_reads_back_equal(tmp_path):
    folder_path = tmp_path / "sweep" / "run"
    with opened(folder_path) as folder:
        assert (
            status(folder_path)["state"] == "RUNNING" and status(folder_path)["pid"] == os.getpid()
        )
        folder.expect(1)
        folder.write_environment({"device": "cpu"})
        folder.append(sample(), rounds_of(sample()))
        folder.write_summary({"n": 1})
        folder.done()
    run = Run(folder_path)
    assert (
        run.state == "DONE"
        and run.status["prompts"] == 1
        and run.status["ended"] >= run.status["started"]
    )
    assert run.samples == [sample()]
    assert run.rounds == rounds_of(sample())
    assert run.config == {"tree": {"budget": 8}}
    assert run.environment["device"] == "cpu" and run.summary == {"n": 1}
    assert [r.path for r in find_runs(tmp_path)] == [folder_path]


def test_a_done_run_is_skipped_and_forced_away(tmp_path):
    with opened(tmp_path) as folder:
        folder.append(sample(), rounds_of(sample()))
        folder.done()
    with opened(tmp_path) as folder:
        assert folder.already_done
        assert finished(folder) == {("p1", 0)}
    assert status(tmp_path)["state"] == "DONE"
    with opened(tmp_path, force=True) as folder:
        assert not folder.already_done and not finished(folder)
        assert (
            not (tmp_path / "samples.jsonl").exists() and not (tmp_path / "rounds.jsonl").exists()
        )


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError("broken head"), "FAILED"),
        (KeyboardInterrupt(), "INTERRUPTED"),
        (SystemExit(143), "INTERRUPTED"),
    ],
)
def test_an_exception_ends_in_the_status_with_its_traceback(tmp_path, error, state):
    with pytest.raises(type(error)), opened(tmp_path):
        raise error
    assert status(tmp_path)["state"] == state
    assert type(error).__name__ in status(tmp_path)["message"]
    assert "test_run_folder.py" in status(tmp_path)["traceback"]


def test_failed_runs_are_not_skipped(tmp_path):
    with opened(tmp_path) as folder:
        folder.append(sample(), rounds_of(sample()))
        folder.fail("1 wrong verdict")
    assert (
        status(tmp_path)["state"] == "FAILED" and status(tmp_path)["message"] == "1 wrong verdict"
    )
    with opened(tmp_path) as folder:
        assert not folder.already_done and finished(folder) == {("p1", 0)}
    assert status(tmp_path)["state"] == "INTERRUPTED"


def test_another_configuration_is_refused(tmp_path):
    opened(tmp_path).close()
    with pytest.raises(RecordError, match="another configuration"):
        RunFolder.open(tmp_path, "", "hash2")


def test_records_that_contradict_themselves_are_refused(tmp_path):
    with opened(tmp_path) as folder:
        for changes, message in [
            ({"emitted": 5}, "emitted 5 but 4 ids"),
            ({"rounds": 3}, "3 rounds, 2 acceptance"),
            ({"emitted_per_round_counts": [2, 2]}, "not 1 \\+ 4"),
            ({"verdict": "fine"}, "verdict 'fine'"),
            ({"finish": "stop"}, "finish 'stop'"),
            ({"time": {"prefill": 1.0}}, "no decode time"),
            ({"time": {"prefill": 1.0, "decode": float("nan")}}, "not a JSON value"),
        ]:
            with pytest.raises(RecordError, match=message):
                folder.append(sample(**changes), ())
        with pytest.raises(RecordError, match="do not match"):
            folder.append(sample(), rounds_of(sample())[:1])
        with pytest.raises(RecordError, match="do not match"):
            folder.append(sample(), rounds_of(sample("other")))
        assert not (tmp_path / "rounds.jsonl").exists()
        folder.append(sample(), rounds_of(sample()))
        with pytest.raises(RecordError, match="already recorded"):
            folder.append(sample(), rounds_of(sample()))
        failed = sample(
            "x", verdict=None, finish=None, error={"type": "NonFiniteLogitsError"}, time={}
        )
        folder.append(failed, rounds_of(failed)[:1])


def test_lines_of_another_version_are_named():
    line = sample().to_dict()
    with pytest.raises(RecordError, match="unknown speed"):
        SampleRecord.from_dict(line | {"speed": 1})
    del line["verdict"]
    with pytest.raises(RecordError, match="missing verdict"):
        SampleRecord.from_dict(line)


def test_a_folder_without_runs_is_named(tmp_path):
    with pytest.raises(RecordError, match="holds no run"):
        find_runs(tmp_path)
    with pytest.raises(RecordError, match="no such folder"):
        find_runs(tmp_path / "none")
    with pytest.raises(RecordError, match="not a run folder"):
        Run(tmp_path)
