"""W&B mirrors the records, offline, one run per configuration; its failures never stop a run."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import wandb

from dartree_exp.config.schema import TrackerConfig
from dartree_exp.metrics.summary import summarise
from dartree_exp.records import RoundRecord
from dartree_exp.trackers import Guarded, RunInfo, WandbTracker, wandb_tracker
from dartree_exp.trackers.rows import SAMPLE_COLUMNS, charted
from sample_records import mini_run, sample

OFFLINE = TrackerConfig(name="wandb", project="trees", entity=None, mode="offline")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_DIR", raising=False)


def info(folder, id="cafe01"):
    folder.mkdir(exist_ok=True)
    return RunInfo(id, f"dartree_pruned {id}", "budgets", "dartree_pruned", folder)


def inspect(folder, *options):
    """The content of the one offline run in a folder, read by the public command."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    command = [
        str(Path(sys.executable).with_name("wandb")),
        "leet",
        "inspect",
        "--json",
        *options,
        str(file),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rounds_of(record):
    shared = dict(
        id=record.id,
        turn=0,
        start=3,
        root=1,
        accepted=[],
        accepted_tokens=[],
        accepted_ranks=[],
        bonus=2,
    )
    return [
        RoundRecord(
            **shared,
            round=i,
            tree_size=64,
            supertree_size=192,
            tree_depth=7,
            tokens_advanced=n,
            emitted=n,
            time={"draft": 0.002},
        )
        for i, n in enumerate(record.acceptance_lengths)
    ]


def test_an_offline_run_reads_back_completely(tmp_path):
    run, said = mini_run(), []
    summary = summarise(run, "dartree_pruned")
    tracker = WandbTracker(OFFLINE, said.append)
    tracker.start({"tree": {"budget": 64}}, info(tmp_path / "run"))
    for record in run:
        tracker.log_sample(record, rounds_of(record))
    tracker.finish(summary)

    back = json.loads(inspect(tmp_path / "run", "--summary"))
    assert (back["run_id"], back["project"], back["state"], back["exit_code"]) == (
        "cafe01",
        "trees",
        "finished",
        0,
    )
    assert back["config"] == {"tree": {"budget": 64}}
    numbers = back["summary"]
    assert numbers["tau_macro"] == pytest.approx(summary["tau_macro"]["value"])
    assert numbers["tau_macro_low"] == pytest.approx(summary["tau_macro"]["low"])
    assert numbers["verdicts/exact"] == 12 and numbers["by_category/math/n"] == 4
    assert numbers["acceptance_length"]["values"] == list(summary["acceptance_histogram"].values())
    assert numbers["acceptance_length"]["bins"] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert numbers["samples"]["nrows"] == len(run)
    [table] = (tmp_path / "run").glob("wandb/offline-run-*/files/media/table/samples*.json")
    rows = [
        dict(zip(SAMPLE_COLUMNS, row, strict=True)) for row in json.loads(table.read_text())["data"]
    ]
    assert [row["id"] for row in rows] == [record.id for record in run]
    assert [row["rounds"] for row in rows] == [record.rounds for record in run]

    records = [json.loads(line) for line in inspect(tmp_path / "run").splitlines()]
    text = json.dumps(records)
    assert '"budgets"' in text and '"dartree_pruned"' in text  # group and job type
    history = [json.dumps(record) for record in records if record["type"] == "history"]
    assert sum("round/tokens_advanced" in row for row in history) == sum(
        record.rounds for record in run
    )
    assert sum("prompt/tau_macro_so_far" in row for row in history) == len(run)
    assert said == [
        "W&B run kept offline; upload it with: wandb sync "
        f"{next((tmp_path / 'run').glob('wandb/off*'))}"
    ]


def test_two_runs_in_one_process_stay_two(tmp_path):
    trackers = []
    for id in ("cafe01", "cafe02"):
        tracker = WandbTracker(OFFLINE, lambda message: None)
        tracker.start({"tree": {"budget": id}}, info(tmp_path / id, id))
        trackers.append(tracker)
    for tracker, tau in zip(trackers, (2, 7), strict=True):
        tracker.log_sample(sample("a", [tau]))
    for tracker in trackers:
        tracker.finish({"acceptance_histogram": {}})
    for id, tau in (("cafe01", 2), ("cafe02", 7)):
        back = json.loads(inspect(tmp_path / id, "--summary"))
        assert back["run_id"] == id and back["summary"]["prompt/tau_macro"] == tau


def test_a_failed_run_ends_with_exit_code_1(tmp_path):
    tracker = WandbTracker(OFFLINE, lambda message: None)
    tracker.start({}, info(tmp_path / "run"))
    tracker.finish(None)
    assert json.loads(inspect(tmp_path / "run", "--summary"))["exit_code"] == 1


def guarded(said):
    return Guarded(WandbTracker(OFFLINE, said.append), said.append)


def test_an_init_failure_is_reported_once_and_stops_nothing(tmp_path, monkeypatch):
    def refuse(**_):
        raise wandb.errors.CommError("no route\nto host")

    monkeypatch.setattr(wandb, "init", refuse)
    said = []
    tracker = guarded(said)
    tracker.start({}, info(tmp_path / "run"))
    tracker.log_sample(sample("a", [2]))
    tracker.finish(summarise([], "m"))
    assert said == [
        "WandbTracker stopped at start: CommError: no route to host. The run continues; its "
        "records are safe."
    ]


def test_an_unreachable_server_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(wandb_tracker, "INIT_TIMEOUT", 2.0)
    said = []
    online = TrackerConfig(name="wandb", project="trees", entity=None, mode="online")
    tracker = Guarded(WandbTracker(online, said.append), said.append)
    tracker.start({}, info(tmp_path / "run"))
    tracker.log_sample(sample("a", [2]))
    tracker.finish(summarise([], "m"))
    assert len(said) == 1 and said[0].startswith("WandbTracker stopped at start: CommError")


class BrokenRun:
    """A W&B run on a full disk that must still be closed."""

    dir = "/nowhere/files"

    def __init__(self, works=0):
        self.works, self.exit_code = works, None

    def define_metric(self, *_, **__):
        pass

    def log(self, row):
        self.works -= 1
        if self.works < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def finish(self, exit_code):
        self.exit_code = exit_code


def test_a_full_disk_is_reported_once_and_the_run_is_closed(tmp_path, monkeypatch):
    broken = BrokenRun(works=1)
    monkeypatch.setattr(wandb, "init", lambda **_: broken)
    said = []
    tracker = guarded(said)
    tracker.start({}, info(tmp_path / "run"))
    for record in mini_run():
        tracker.log_sample(record)
    tracker.finish(summarise(mini_run(), "m"))
    assert len(said) == 1 and "No space left" in said[0] and "stopped at log_sample" in said[0]
    assert (
        broken.exit_code == 0 and broken.works == -2
    )  # one good row, one refused; the histogram too, then closed


KILLED_SERVICE = """
import contextlib, os, pathlib, signal, sys
sys.path.insert(0, sys.argv[2])
from test_wandb_tracker import Guarded, OFFLINE, WandbTracker, info, mini_run, summarise
tracker = Guarded(WandbTracker(OFFLINE, print), print)
tracker.start({}, info(pathlib.Path(sys.argv[1])))
stats = []
for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    with contextlib.suppress(OSError):  # it ended meanwhile
        stats.append(path.read_text().rpartition(")"))
children = [head for head, _, rest in stats if int(rest.split()[1]) == os.getpid()]
(service,) = [head.split()[0] for head in children if "wandb" in head]
os.kill(int(service), signal.SIGKILL)
for record in mini_run():
    tracker.log_sample(record)
tracker.finish(summarise(mini_run(), "m"))
print("the run went on")
"""


def test_a_killed_service_does_not_take_the_run_with_it(tmp_path):
    here = Path(__file__).parent
    # Its own service, not the one this process talks to.
    env = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}
    env["PYTHONPATH"] = os.pathsep.join([str(here.parent), env.get("PYTHONPATH", "")])
    out = subprocess.run(
        [sys.executable, "-c", KILLED_SERVICE, tmp_path / "run", here],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
    )
    assert out.returncode == 0, out.stderr
    first, *_, last = out.stdout.splitlines()
    assert first.startswith("WandbTracker stopped at ") and last == "the run went on"


def test_summary_is_charteded_without_empty_numbers():
    flat = charted(summarise([sample("a", [3])], "m"))
    assert flat["tau_macro"] == 3 and "tau_macro_low" not in flat
    assert flat["stages/verify"] == 0.5 and flat["method"] == "m" and flat["verdicts/exact"] == 1
    assert not any(
        key.startswith(("definitions", "interval", "survival", "acceptance_histogram"))
        for key in flat
    )
    assert all(value is not None for value in flat.values())
