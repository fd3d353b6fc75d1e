"""The online path against a server on loopback: a run, an offline run synced later, a report."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from wandb_stub import WandbStub

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library is written for the pydantic before
    import wandb_workspaces.reports.v2  # noqa: F401

from dartree_exp.config.schema import TrackerConfig
from dartree_exp.errors import UserError
from dartree_exp.metrics.summary import summarise
from dartree_exp.report.wandb_report import comparison_report, save_comparison_report
from dartree_exp.trackers import RunInfo, WandbTracker
from sample_records import mini_run

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path, monkeypatch):
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with WandbStub() as stub:
        monkeypatch.setenv("WANDB_BASE_URL", stub.url)
        yield stub


def track(folder, mode, said):
    """Mirror one run; its samples and summary."""
    folder.mkdir()
    run = mini_run()
    summary = summarise(run, "dartree_pruned")
    tracker = WandbTracker(
        TrackerConfig(name="wandb", project="trees", entity="us", mode=mode), said.append
    )
    tracker.start(
        {"tree": {"budget": 64}}, RunInfo("cafe01", "a run", "budgets", "dartree_pruned", folder)
    )
    for record in run:
        tracker.log_sample(record)
    tracker.finish(summary)
    return run, summary


def check_arrived(server, run, summary):
    bucket = server.runs["cafe01"]
    assert (bucket["project"], bucket["groupName"], bucket["jobType"]) == (
        "trees",
        "budgets",
        "dartree_pruned",
    )
    assert json.loads(bucket["config"])["tree"]["value"] == {"budget": 64}
    taus = [
        row["prompt/tau_macro_so_far"] for row in server.history if "prompt/tau_macro_so_far" in row
    ]
    assert len(taus) == len(run) and taus[-1] == pytest.approx(summary["tau_macro"]["value"])
    assert server.summary["tau_macro"] == pytest.approx(summary["tau_macro"]["value"])
    [table] = [name for name in server.files if name.startswith("media/table/samples")]
    assert [row[0] for row in json.loads(server.files[table])["data"]] == [
        record.id for record in run
    ]
    assert server.exit_code == 0


def test_a_run_arrives(server, tmp_path):
    said = []
    check_arrived(server, *track(tmp_path / "run", "online", said))
    assert said == []


def test_an_offline_run_is_synced_by_the_command_it_names(server, tmp_path):
    said = []
    run, summary = track(tmp_path / "run", "offline", said)
    assert server.operations == []
    program, *arguments = said[0].partition("with: ")[2].split()
    subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        check=True,
        capture_output=True,
        timeout=120,
    )
    check_arrived(server, run, summary)


SUMMARIES = {
    "ddtree": summarise(mini_run(), "ddtree"),
    "dartree_pruned": summarise(mini_run(shift=2), "dartree_pruned"),
    "broken": summarise([], "broken"),
}


def test_a_report_shows_the_summaries_and_the_sweeps_runs(server):
    url = save_comparison_report("budgets", SUMMARIES, "trees", "us", note="one CPU")
    assert url.startswith(server.url) and "us/trees/reports" in url
    [view] = server.views
    assert (view["entityName"], view["projectName"], view["displayName"]) == (
        "us",
        "trees",
        "dartree_exp: budgets",
    )
    spec = view["spec"]
    tau = SUMMARIES["dartree_pruned"]["tau_macro"]
    assert (
        f"| dartree_pruned | 12 | {tau['value']:.2f} [{tau['low']:.2f}, {tau['high']:.2f}] |"
        in spec
    )
    assert "| broken | 0 | – | – | – |" in spec and "one CPU" in spec
    blocks = json.loads(spec)["blocks"]
    [grid] = [block for block in blocks if block["type"] == "panel-grid"]
    assert '"budgets"' in json.dumps(grid["metadata"]["runSets"])
    charted = json.dumps(grid["metadata"]["panelBankSectionConfig"])
    for key in ("tau_macro", "speedup", "prompt/tau_macro_so_far", "acceptance_length", "samples"):
        assert key in charted


def test_building_a_report_sends_no_request(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    report = comparison_report("budgets", SUMMARIES, "trees", "us")
    assert [type(block).__name__ for block in report.blocks] == ["MarkdownBlock", "PanelGrid"]


def test_a_server_that_refuses_is_one_line(server):
    server.answer = lambda *_: {
        "viewer": {"id": "u1", "entity": "us"},
        "project": None,
    }  # no such project
    with pytest.raises(UserError, match="not found"):
        save_comparison_report("budgets", SUMMARIES, "trees", "us")


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['wandb_workspaces'] = None\nfrom "
        "dartree_exp.report.wandb_report import *\n"
    )
    code += "try: comparison_report('s', {}, 'p', 'e')\nexcept Exception as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert "dartree_exp[report]" in done.stdout
