"""TensorBoard's own reader finds the recorded numbers in the event files."""

import builtins
import sys
import warnings

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.metrics.summary import summarise
from dartree_exp.records import RoundRecord, RunFolder
from dartree_exp.trackers import Guarded, RunInfo, TensorboardTracker, make_tracker
from sample_records import mini_run, sample


def read(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reader's own dependencies
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(
        str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}
    )
    return events.Reload()


def round_of(record, index, advanced):
    shared = dict(
        start=3, root=1, accepted=[], accepted_tokens=[], accepted_ranks=[], bonus=2, tree_depth=7
    )
    sizes = dict(
        tree_size=64,
        supertree_size=192,
        tokens_advanced=advanced,
        emitted=advanced,
        time={"draft": 0.002},
    )
    return RoundRecord(id=record.id, turn=0, round=index, **shared, **sizes)


def test_a_run_reads_back_completely(tmp_path):
    run = mini_run()
    summary = summarise(run, "dartree_pruned")
    tracker = TensorboardTracker()
    tracker.start(
        {"tree": {"budget": 64}}, RunInfo("cafe01", "run", "budgets", "dartree_pruned", tmp_path)
    )
    for record in run:
        tracker.log_sample(
            record, [round_of(record, i, n) for i, n in enumerate(record.acceptance_lengths)]
        )
    tracker.finish(summary)

    events = read(tmp_path / "tensorboard")
    advanced = [event.value for event in events.Scalars("round/tokens_advanced")]
    assert advanced == [n for record in run for n in record.acceptance_lengths]
    assert [event.step for event in events.Scalars("prompt/tau_macro_so_far")] == list(
        range(len(run))
    )
    assert events.Scalars("summary/tau_macro")[0].value == pytest.approx(
        summary["tau_macro"]["value"]
    )
    assert events.Scalars("round/draft_ms")[0].value == pytest.approx(2.0)
    [histogram] = events.Histograms("acceptance_length")
    assert histogram.histogram_value.bucket == list(summary["acceptance_histogram"].values())
    assert histogram.histogram_value.bucket_limit == [1.5, 2.5, 3.5, 4.5, 5.5]
    [config] = events.Tensors("config/text_summary")
    assert b'"budget": 64' in config.tensor_proto.string_val[0]


def test_a_resumed_run_is_mirrored_once(tmp_path):
    config = compose(["tracker=tensorboard"])
    for record in (sample("a", [2]), sample("b", [3])):
        with RunFolder.open(tmp_path / config_hash(config), "", config_hash(config)) as folder:
            tracker = make_tracker(config, folder.path, pytest.fail)
            folder.append(
                record, [round_of(record, i, n) for i, n in enumerate(record.acceptance_lengths)]
            )
            tracker.log_sample(record)
            tracker.finish(None)
    events = read(tmp_path / config_hash(config) / "tensorboard")
    assert [event.value for event in events.Scalars("prompt/tau_macro")] == [2, 3]


def test_a_missing_extra_is_named_and_costs_nothing(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "torch.utils.tensorboard":
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    said = []
    tracker = Guarded(TensorboardTracker(), said.append)
    tracker.start({}, RunInfo("cafe01", "run", "s", "m", tmp_path))
    tracker.log_sample(sample("a", [2]))
    tracker.finish(None)
    assert len(said) == 1 and "dartree_exp[tensorboard]" in said[0]
