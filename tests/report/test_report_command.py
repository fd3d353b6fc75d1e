"""`python -m dartree_exp.report`: from files alone, fast, without torch, with one line for a bad
folder.
"""

import subprocess
import sys

import pytest

from dartree_exp.metrics.summary import summarise
from dartree_exp.records import Run
from dartree_exp.records.files import write_json
from dartree_exp.report import wandb_report
from dartree_exp.report.__main__ import main
from sample_records import mini_run, write_run


@pytest.fixture
def sweep(tmp_path):
    for index, budget in enumerate((16, 32, 64, 128)):
        write_run(tmp_path / "sweep" / f"run{index}", mini_run(index, prompts=16), budget=budget)
    return tmp_path / "sweep"


def test_a_sweep_folder_gets_all_its_tables(sweep, capsys):
    assert main([str(sweep)]) == 0
    assert {path.name for path in sweep.iterdir() if path.is_file()} == {
        "comparison.md",
        "comparison.csv",
    }
    assert all(
        (sweep / f"run{i}" / name).exists() for i in range(4) for name in ("table.md", "table.csv")
    )
    assert capsys.readouterr().out.count("tree.budget=128") == 2  # overall and by category


def test_tables_are_rebuilt_without_the_summary(sweep, capsys):
    assert main([str(sweep / "run0")]) == 0
    before = (sweep / "run0" / "table.md").read_text()
    assert not (sweep / "run0" / "summary.json").exists()
    for name in ("table.md", "table.csv"):
        (sweep / "run0" / name).unlink()
    assert main([str(sweep / "run0")]) == 0
    assert (sweep / "run0" / "table.md").read_text() == before


def test_several_run_folders_are_compared(sweep, capsys):
    assert main([str(sweep / "run0"), str(sweep / "run3"), "--baseline", "run0"]) == 0
    assert "against dartree_pruned tree.budget=16, paired by prompt" in capsys.readouterr().out
    assert not (sweep / "comparison.md").exists()


def test_a_bad_folder_is_one_line_and_status_2(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'}: no such folder\n"
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_one_damaged_run_does_not_hide_the_others(sweep, capsys):
    samples = sweep / "run1" / "samples.jsonl"
    samples.write_text("{broken\n" + samples.read_text())
    (sweep / "run2" / "config.yaml").write_text("a: [\n")
    assert main([str(sweep)]) == 2
    out, err = capsys.readouterr()
    assert (
        len(err.splitlines()) == 2
        and "run1/samples.jsonl:1: damaged line" in err
        and "run2/config.yaml" in err
    )
    assert "tree.budget=128" in out and "tree.budget=32" not in out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", "null\n"),
        ("rounds.jsonl", "[]\n"),
        ("trees.jsonl", None),
        ("status.json", "7\n"),
    ],
)
def test_a_record_of_the_wrong_shape_stops_nobody_elses_page(tmp_path, capsys, name, content):
    sweep = tmp_path / "sweep"
    for index, budget in enumerate((16, 32, 128)):
        write_run(sweep / f"run{index}", mini_run(index), budget=budget)
    file = sweep / "run1" / name
    file.unlink(missing_ok=True)
    file.mkdir() if content is None else file.write_text(content * 2)
    assert main([str(sweep), "--html", str(tmp_path / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and f"run1/{name}" in err
    assert "tree.budget=128" in (tmp_path / "page.html").read_text() and "tree.budget=128" in out


def test_it_is_fast_and_imports_no_torch(sweep):
    code = (
        "import resource, sys\nfrom dartree_exp.report.__main__ import main\n"
        "status = main(sys.argv[1:])\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(status, 'torch' in sys.modules, 'transformers' in sys.modules, used.ru_utime + "
        "used.ru_stime)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, sweep], capture_output=True, text=True, check=True
    ).stdout
    status, torch, transformers, seconds = out.splitlines()[-1].split()
    assert (status, torch, transformers) == ("0", "False", "False")
    assert float(seconds) < 2  # CPU seconds, so that a busy machine does not fail it


def test_a_wandb_report_gets_the_summaries_under_the_names_of_the_tables(
    sweep, capsys, monkeypatch
):
    saved = []
    monkeypatch.setattr(
        wandb_report, "save_comparison_report", lambda *call: saved.append(call) or "https://w.ai/r"
    )
    assert main([str(sweep), "--wandb-report", "us/trees"]) == 2
    assert "none of these runs is done" in capsys.readouterr().err
    for index in (0, 2):
        run = Run(sweep / f"run{index}")
        write_json(run.path / "summary.json", summarise(run.samples, "dartree_pruned"))
    assert main([str(sweep), "--wandb-report", "us/trees"]) == 0
    assert "https://w.ai/r" in capsys.readouterr().out
    ((name, summaries, project, entity, note),) = saved
    assert (name, project, entity) == ("sweep", "trees", "us")
    assert list(summaries) == ["dartree_pruned tree.budget=16", "dartree_pruned tree.budget=64"]
    assert (
        summaries["dartree_pruned tree.budget=16"]["n"] == 48
        and "all settings, budgets included, come" in note
    )
    assert note.startswith("0 wrong of 96 outputs; 96 exact. ")


@pytest.mark.parametrize("address", ["trees", "/trees", "us/", "a/b/c"])
def test_a_wandb_address_is_entity_and_project(sweep, capsys, address):
    assert main([str(sweep), "--wandb-report", address]) == 2
    assert f"--wandb-report {address}: must be ENTITY/PROJECT" in capsys.readouterr().err
