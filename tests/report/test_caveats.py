"""Times under load are not valid, cut runs are incomplete, failed runs measure nothing: and the
report says so everywhere.
"""

import csv

import pytest

from dartree_exp.records import RecordError, Run, find_runs
from dartree_exp.report import comparison, run_tables
from dartree_exp.report.__main__ import main
from dartree_exp.report.caveats import load_problem
from dartree_exp.report.published import published_tables
from dartree_exp.report.swap import swap_tables
from sample_records import mini_run, write_run

BUSY = {"load": {"start": 1.5, "end": 7.0, "cores": 2}}
SAID = "times not valid: load 7 on 2 cores"


def bold(table):
    return {
        (table.headers[i], row[0].values["run"])
        for row in table.rows
        for i, cell in enumerate(row)
        if cell.best
    }


def folders(sweep):
    return sorted(path for path in sweep.iterdir() if path.is_dir())


def fail(folder):
    folder.fail("1 of 12 outputs differ from plain decoding")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (BUSY, SAID),
        ({"load": {"start": 2.34, "end": 0.5, "cores": 2}}, "times not valid: load 2.3 on 2 cores"),
        ({"load": {"start": 2.0, "end": 2.04, "cores": 2}}, None),
        ({"load": {"start": 3.0, "end": None, "cores": 2}}, "times not valid: load 3 on 2 cores"),
        ({"load": [7.0, 1.0, 1.0], "cpu": {"cores": 2}}, SAID),  # older records
        ({"load": [7.0, 1.0, 1.0]}, None),
        ({"load": []}, None),
        ({"load": "high"}, None),
        ({}, None),
    ],
)
def test_load_above_the_cores_makes_times_invalid(environment, said):
    assert load_problem(environment) == said


def test_terminal_tables_and_page_say_that_times_are_not_valid(tmp_path, capsys):
    for index, budget in enumerate((16, 64)):
        environment = BUSY if index else {"load": {"start": 0.1, "end": 1.9, "cores": 2}}
        write_run(
            tmp_path / f"run{index}", mini_run(2 * index), budget=budget, environment=environment
        )
    assert (
        main([str(tmp_path), "--latex", "--published", "--html", str(tmp_path / "page.html")]) == 0
    )
    shown = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    shown |= {f"run {path.name}": path.read_text() for path in (tmp_path / "run1").glob("table.*")}
    shown["terminal"] = capsys.readouterr().out
    assert {
        "comparison.md",
        "comparison.csv",
        "comparison.tex",
        "published.md",
        "run table.md",
    } <= set(shown)
    for name, text in shown.items():
        assert SAID in text.replace("Times", "times"), name
    assert "not valid" not in (tmp_path / "run0" / "table.md").read_text()
    page = shown["page.html"]
    alarm = f'<p class="alarm" role="alert">dartree_pruned tree.budget=64: {SAID}'
    assert page.index(alarm) < page.index("<h1>")
    rows = {
        row["folder"]: row
        for row in csv.DictReader(shown["comparison.csv"].splitlines())
        if row["category"] == "all"
    }
    assert {name: row["times"] for name, row in rows.items()} == {"run0": "", "run1": SAID}
    assert (
        rows["run1"]["speedup_ratio_separable"] == "not comparable"
        and rows["run1"]["tau_ratio_separable"] == "yes"
    )


def test_times_under_load_are_never_the_best_nor_ranked(tmp_path):
    for name, environment in (("calm", {}), ("busy", BUSY)):
        for index, budget in enumerate((16, 64)):
            write_run(
                tmp_path / name / str(budget),
                mini_run(2 * index),
                budget=budget,
                environment=environment,
            )
    winner = "dartree_pruned tree.budget=64"
    assert bold(comparison(folders(tmp_path / "calm"))[0]) == {
        ("tau macro", winner),
        ("speedup", winner),
    }
    table = comparison(folders(tmp_path / "busy"))[0]
    assert bold(table) == {("tau macro", winner)} and SAID in table.notes
    assert f"no speed is bold or separable: {SAID}" in table.notes
    for index, budget in enumerate((16, 64)):
        run = mini_run(2 * index)
        write_run(
            tmp_path / "shared" / str(budget),
            run,
            budget=budget,
            environment=BUSY,
            baseline="shared",
        )
    table = comparison(folders(tmp_path / "shared"))[0]
    assert not any("rank" in cell.text for row in table.rows for cell in row)
    assert not any(note.startswith("rank") for note in table.notes)


def test_an_overview_says_it_too(tmp_path):
    for benchmark in ("mini", "gsm8k"):
        write_run(tmp_path / benchmark, mini_run(), environment=BUSY, benchmark__name=benchmark)
    overview = comparison(folders(tmp_path))[0]
    assert overview.title == "overview" and SAID in overview.notes
    assert all("not valid" in cell.text for cell in overview.rows[0][1:])
    [published] = published_tables([Run(path) for path in folders(tmp_path)])
    assert SAID in published.notes


def cut(folder, keep):
    lines = (folder / "samples.jsonl").read_text().splitlines(keepends=True)
    (folder / "samples.jsonl").write_text("".join(lines[:keep]))
    return folder


def test_a_finished_run_with_missing_samples_is_incomplete_and_never_the_best(tmp_path, capsys):
    cut(write_run(tmp_path / "a", mini_run(2, prompts=16), budget=16), 9)
    write_run(tmp_path / "b", mini_run(0, prompts=16))
    table = run_tables(tmp_path / "a")
    assert table.notes[0].startswith("9 of 48 samples, incomplete")
    assert main([str(tmp_path), "--html", str(tmp_path / "page.html")]) in (0, 2)
    assert "tree.budget=16: 9 of 48 samples, incomplete" in capsys.readouterr().out
    assert (
        "9 of 48 samples, incomplete" in (tmp_path / "page.html").read_text().partition("<h1>")[0]
    )
    compared = comparison([tmp_path / "a", tmp_path / "b"])[0]
    assert bold(compared) == set() and compared.rows[0][0].markdown.endswith("(incomplete)")
    assert compared.rows[0][3].text != "baseline" and compared.rows[1][3].text == "baseline"


def test_a_failed_run_is_never_the_baseline(tmp_path):
    write_run(tmp_path / "a", mini_run(0), method="dflash", end=fail)
    write_run(tmp_path / "b", mini_run(1), method="domino")
    write_run(tmp_path / "c", mini_run(2))
    rows = comparison(folders(tmp_path))[0].rows
    assert [row[0].values["run"] for row in rows if row[3].text == "baseline"] == ["domino"]
    with pytest.raises(
        RecordError, match=r"baseline 'dflash' is a FAILED run \(1 of 12 outputs differ"
    ):
        comparison(folders(tmp_path), baseline="dflash")


def test_where_all_runs_failed_there_is_no_baseline(tmp_path):
    write_run(tmp_path / "a", mini_run(0), method="dflash", end=fail)
    write_run(tmp_path / "b", mini_run(1), method="domino", end=fail)
    table = comparison(folders(tmp_path), output=tmp_path)[0]
    assert [row[3].text for row in table.rows] == ["–", "–"]
    assert "Δ tau and tau ratio: no baseline: all runs failed" in table.notes


def test_a_swap_compares_no_failed_run(tmp_path):
    for index, budget in enumerate((16, 32, 64)):
        write_run(
            tmp_path / str(budget),
            mini_run(index),
            budget=budget,
            end=fail if budget == 64 else lambda f: f.done(),
        )
    [table] = swap_tables(find_runs(tmp_path), "tree.budget")
    assert [[row[0].text, row[1].text] for row in table.rows] == [
        [f"dartree_pruned tree.budget={b}" for b in (32, 16)]
    ]
    assert any(note.startswith("FAILED runs are left out: ") for note in table.notes)
