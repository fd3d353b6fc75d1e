"""The tracker of a configuration: none by default; a resumed run is mirrored completely."""

import subprocess
import sys

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.records import RunFolder
from dartree_exp.trackers import NoTracker, WandbTracker, make_tracker
from sample_records import sample


@pytest.fixture
def calls(monkeypatch):
    calls = []
    monkeypatch.setattr(
        WandbTracker, "start", lambda self, config, info: calls.append((config, info))
    )
    monkeypatch.setattr(
        WandbTracker, "log_sample", lambda self, s, rounds=(): calls.append((s.id, len(rounds)))
    )
    return calls


def test_no_tracker_by_default(tmp_path):
    assert isinstance(make_tracker(compose(), tmp_path), NoTracker)


def test_identity_and_replay_of_a_resumed_run(tmp_path, calls):
    config = compose(["tracker=wandb"])
    path = tmp_path / "budgets" / config_hash(config)
    with RunFolder.open(path, "", config_hash(config)) as folder:
        folder.append(sample("a", [2]))
        folder.append(sample("b", [3]))
        make_tracker(config, folder.path, pytest.fail)
    (settings, info), *replayed = calls
    assert settings["tree"]["budget"] == config.tree.budget
    assert (
        info.id == config_hash(config)
        and info.group == "budgets"
        and info.job_type == config.method
    )
    assert replayed == [("a", 0), ("b", 0)]


def test_w_and_b_is_not_imported_without_need():
    code = "import sys, dartree_exp.trackers; print('wandb' in sys.modules, 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False False"
