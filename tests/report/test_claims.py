"""What a table may call the best, and what it may not."""

import re

import pytest
from test_compare import csv_rows, folders

from dartree_exp.report import comparison
from dartree_exp.report.latex import latex
from sample_records import mini_run, sample, write_run


@pytest.mark.parametrize("process", ["another", None], ids=["another", "several"])
def test_speeds_of_several_processes_are_never_the_best(sweep, process):
    """An interval over prompts says nothing about what else a machine did while another process was
    timed.
    """
    assert any(column == "speedup" for column, _ in bold(comparison(folders(sweep))[0]))
    write_run(sweep / "d", mini_run(), method="domino", environment={"process": process})
    table = comparison(folders(sweep))[0]
    assert not any(column == "speedup" for column, _ in bold(table))
    assert any("not all runs were timed in one process" in note for note in table.notes)


def test_the_best_is_bold_only_where_every_difference_says_so(sweep):
    tables = comparison(folders(sweep), output=sweep)
    assert [
        [cell.best for cell in row].index(True)
        for row in tables[0].rows
        if any(c.best for c in row)
    ] == [2]
    assert tables[0].rows[2][2].best and "**5.10** [4.79, 5.40]" in tables[0].markdown()
    assert any(note.startswith("bold: the best") for note in tables[0].notes)
    assert not any(
        cell.best for row in tables[1].rows for cell in row
    )  # four prompts a category are too few
    write_run(sweep / "d", mini_run(2), method="domino")  # as good as the best
    assert not any(cell.best for row in comparison(folders(sweep))[0].rows for cell in row)


def test_wrong_outputs_are_never_the_best(sweep):
    bad = mini_run(3)
    bad[0].verdict, bad[0].verdict_detail = "wrong", {"index": 1}
    write_run(sweep / "d", bad, method="domino")
    assert not any(cell.best for row in comparison(folders(sweep))[0].rows for cell in row)


def bold(table):
    return {
        (table.headers[i], row[0].values["run"])
        for row in table.rows
        for i, cell in enumerate(row)
        if cell.best
    }


def rewritten(sweep, **settings):
    """The runs of the fixture with further settings, and their comparison."""
    write_run(sweep / "a", mini_run(2), budget=128, **settings)
    write_run(sweep / "b", mini_run(1), budget=16, **settings)
    write_run(sweep / "c", mini_run(0), method="dflash", tree__name="chain", **settings)
    return comparison(folders(sweep), output=sweep)[0]


def test_speeds_are_bold_where_each_method_was_timed_beside_plain_decoding(tmp_path):
    table = rewritten(tmp_path, baseline="paired")
    winner = "dartree_pruned tree.budget=128"
    assert bold(table) == {("tau macro", winner), ("speedup", winner)}
    assert not any("rank" in note for note in table.notes)
    column = list(table.headers).index("ms per round")
    assert [row[column].markdown for row in table.rows] == ["50.00 [50.00, 50.00]"] * 3


def test_a_shared_baseline_makes_no_speed_bold_and_ranks_by_milliseconds_a_round(tmp_path):
    table = rewritten(tmp_path, baseline="shared")
    assert bold(table) == {("tau macro", "dartree_pruned tree.budget=128")}
    notes = "\n".join(table.notes)
    assert (
        "no speed is bold or separable: plain decoding was not timed beside each method "
        "(baseline=shared)" in notes
    )
    assert (
        "rank: by milliseconds per round" in notes
        and "ms per round: decode milliseconds / rounds" in notes
    )
    rows = {
        row["run"]: row for row in csv_rows(tmp_path / "comparison.csv") if row["category"] == "all"
    }
    assert {row["speedup_ratio_separable"] for row in rows.values()} == {"", "not comparable"}
    assert {row["tau_difference_separable"] for row in rows.values()} == {"", "yes"}


def test_the_rank_leaves_plain_decoding_out(tmp_path):
    for name, factor in (("slow", 3.0), ("fast", 1.0)):
        run = mini_run()
        for record in run:
            record.time["decode"] *= factor
        write_run(tmp_path / name, run, method=name, baseline="shared")
    ar = [sample(s.id, [1] * 4, category=s.category, seconds=0.004) for s in mini_run()]
    write_run(tmp_path / "ar", ar, method="ar", baseline="shared")
    table = comparison(folders(tmp_path))[0]
    shown = {
        row[0].text: row[list(table.headers).index("ms per round")].text.split("\n")
        for row in table.rows
    }
    assert shown["fast"][0] == "50.00" and shown["fast"][-1] == "rank 1"
    assert shown["slow"][0] == "150.00" and shown["slow"][-1] == "rank 2"
    assert shown["ar"][0] == "1.00" and "rank" not in shown["ar"][-1]


def test_plain_decoding_is_never_the_best(tmp_path):
    slow, fast = mini_run(0), mini_run(4)
    for record in slow:
        record.time["decode"] *= 2
    write_run(tmp_path / "a", slow, method="domino")
    write_run(tmp_path / "b", fast, method="mine")
    assert {name for _, name in bold(comparison(folders(tmp_path))[0])} == {"mine"}
    write_run(tmp_path / "c", fast, method="ar")
    write_run(tmp_path / "d", slow, method="dflash")
    assert bold(comparison([tmp_path / "a", tmp_path / "c", tmp_path / "d"])[0]) == set()


def test_a_run_without_an_end_is_never_the_best(tmp_path):
    write_run(
        tmp_path / "a", mini_run(2), end=lambda folder: folder.fail("no space"), method="domino"
    )
    write_run(tmp_path / "b", mini_run(0))
    assert bold(comparison(folders(tmp_path))[0]) == set()


def test_copies_of_one_prompt_make_no_claim_and_are_counted(tmp_path):
    for name, shift in (("a", 0), ("b", 2)):
        run = mini_run(shift)
        for record in run:
            record.prompt_sha256 = "one prompt"
        write_run(tmp_path / name, run, method=name)
    table = comparison(folders(tmp_path), output=tmp_path)[0]
    assert bold(table) == set() and {row[1].text for row in table.rows} == {"1"}
    assert "11 copies" in table.rows[0][-1].text
    assert {row["tau_difference_separable"] for row in csv_rows(tmp_path / "comparison.csv")} == {
        "",
        "too few",
    }


def test_only_the_tau_of_an_overview_is_bold(tmp_path):
    for setting in ("mini", "gsm8k"):
        write_run(
            tmp_path / f"{setting}a",
            mini_run(2),
            method="domino",
            benchmark__name=setting,
            baseline="shared",
        )
        write_run(
            tmp_path / f"{setting}b",
            mini_run(0),
            method="dflash",
            benchmark__name=setting,
            baseline="shared",
        )
    overview = comparison(folders(tmp_path))[0]
    assert overview.title == "overview" and "| **5.10** / " in overview.markdown()
    assert r"\textbf{5.10}\\" in latex([overview]) and not re.search(
        r"textbf\{[\d.]+\$", latex([overview])
    )
