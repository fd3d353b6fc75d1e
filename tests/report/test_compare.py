"""Comparisons pair by prompt, name runs by what differs, and refuse what must not share a table."""

import csv
import io

import pytest
from rich.console import Console

from dartree_exp.records import RecordError, Run
from dartree_exp.report import comparison
from dartree_exp.report.labels import name_runs
from sample_records import ENVIRONMENT, mini_run, sample, write_run


def folders(sweep):
    return sorted(path for path in sweep.iterdir() if path.is_dir())


def csv_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_rows_are_ordered_named_and_paired_with_the_baseline(sweep):
    out = io.StringIO()
    tables = comparison(
        folders(sweep), Console(file=out, width=120, color_system=None), output=sweep
    )
    rows = [[cell.markdown or cell.text for cell in row] for row in tables[0].rows]
    assert [row[0] for row in rows] == [
        "dflash",
        "dartree_pruned tree.budget=16",
        "dartree_pruned tree.budget=128",
    ]
    assert [row[3] for row in rows] == ["baseline", "+1.00 [+1.00, +1.00]", "+2.00 [+2.00, +2.00]"]
    assert all(
        row[4].startswith(start)
        for row, start in zip(rows, ("base", "1.32 [1.2", "1.64 [1.5"), strict=True)
    )
    assert [column.markdown or column.text for column in tables[1].rows[0]][1].startswith(
        "3.12 [2.59, 3.59], n = 4"
    )
    assert list(tables[1].headers) == ["run", "math", "code", "chat", "spread"]
    text = (sweep / "comparison.md").read_text()
    assert "| dflash | 12 |" in text and "**tau macro by category**" in text
    assert "+2.00…+2.00" in out.getvalue() and "against dflash, paired by prompt" in out.getvalue()


def test_the_csv_has_every_category_and_says_what_is_separable(sweep):
    comparison(folders(sweep), output=sweep)
    rows = csv_rows(sweep / "comparison.csv")
    assert len(rows) == 3 * 4 and {row["category"] for row in rows} == {
        "all",
        "math",
        "code",
        "chat",
    }
    pruned = next(row for row in rows if row["folder"] == "a" and row["category"] == "code")
    assert (
        float(pruned["tau_difference"]) == pytest.approx(2)
        and pruned["tau_difference_separable"] == "too few"
    )
    assert pruned["tau_difference_n"] == "4" and pruned["state"] == "DONE"
    assert float(pruned["speedup_ratio_low"]) > 1.3 and float(
        pruned["ms_per_round"]
    ) == pytest.approx(50)
    everything = next(row for row in rows if row["folder"] == "a" and row["category"] == "all")
    assert everything["tau_difference_separable"] == everything["speedup_ratio_separable"] == "yes"


@pytest.mark.parametrize("wanted", ["dartree_pruned tree.budget=16", "b"])
def test_the_baseline_can_be_chosen(sweep, wanted):
    rows = comparison(folders(sweep), baseline=wanted)[0].rows
    assert [row[3].text.split("\n")[0] for row in rows] == ["-1.00", "baseline", "+1.00"]


@pytest.mark.parametrize("wanted", ["dartree_pruned", "domino"])
def test_a_baseline_that_names_no_single_run_is_refused(sweep, wanted):
    with pytest.raises(RecordError, match=r"names: dflash; dartree_pruned tree\.budget=16"):
        comparison(folders(sweep), baseline=wanted)


def test_plain_decoding_comes_first_but_is_not_the_default_baseline(sweep):
    ar = [sample(s.id, [], emitted=s.emitted, category=s.category) for s in mini_run()]
    write_run(sweep / "d", ar, method="ar")
    rows = comparison(folders(sweep))[0].rows
    assert rows[0][0].text == "ar" and rows[0][2].text == "–" and rows[0][3].text == "–"
    assert rows[1][3].text == "baseline"


def test_exact_and_lossy_runs_never_share_a_table(sweep):
    write_run(sweep / "d", mini_run(exact=False), method="typical")
    with pytest.raises(RecordError, match=r"lossy runs cannot be compared with exact ones.*/d$"):
        comparison(folders(sweep))
    comparison([sweep / "d"])


def test_unfinished_runs_and_partial_overlap_are_said(sweep):
    write_run(sweep / "d", mini_run(1)[:10], method="domino", end=lambda folder: None)
    table = comparison(folders(sweep))[0]
    row = next(row for row in table.rows if row[0].text.startswith("domino"))
    assert row[0].markdown == "domino (INTERRUPTED)" and row[1].text == "10"
    assert any(note.startswith("domino: INTERRUPTED, 10 of 10 samples") for note in table.notes)
    backwards = comparison(folders(sweep), baseline="domino")[0]
    assert all(
        "n = 10" in row[3].text for row in backwards.rows if not row[0].text.startswith("domino")
    )


def test_other_prompts_under_the_same_ids_are_left_out_and_said(sweep):
    other = mini_run(1)
    for record in other[:5]:
        record.prompt_sha256 = "another template"
    write_run(sweep / "d", other, method="domino")
    table = comparison(folders(sweep))[0]
    assert any(note.startswith("up to 5 turns share an id") for note in table.notes)
    assert "n = 7" in next(row for row in table.rows if row[0].text == "domino")[3].text


def test_speeds_from_several_machines_carry_a_warning(sweep):
    assert not any("same machine" in note for note in comparison(folders(sweep))[0].notes)
    write_run(
        sweep / "d",
        mini_run(),
        method="domino",
        environment={"cpu": ENVIRONMENT["cpu"] | {"model": "Other CPU"}},
    )
    notes = comparison(folders(sweep))[0].notes
    assert any(
        n.startswith("no speed is bold or separable: not all runs are from the same machine")
        for n in notes
    )
    assert sum(note.startswith("cpu, ") for note in notes) == 2


def test_names_show_what_differs_and_nothing_else(tmp_path):
    def named(*settings):
        runs = [
            Run(
                write_run(
                    tmp_path / f"{len(list(tmp_path.iterdir()))}", [sample("a", [2])], **chosen
                )
            )
            for chosen in settings
        ]
        return name_runs(runs)

    assert named({}, {"method": "domino", "tree__name": "chain"}) == (
        ["dartree_pruned", "domino"],
        [],
    )
    names, hidden = named({}, {"model__name": "toy", "decoding__seed": 1})
    assert names == ["dartree_pruned model=smollm2_135m", "dartree_pruned model=toy"]
    assert hidden == ["decoding.seed"]
    names, _ = named(*({"budget": b, "tree__width": w} for b in (16, 64) for w in (4, 8)))
    assert names[3] == "dartree_pruned tree.budget=64 tree.width=8" and len(set(names)) == 4
    unread = [{"tree__width": w, "tree__beta": b} for w, b in ((4, -0.1), (8, -0.2))]
    names, _ = named(*({"method": "x+pool(static)", "tree__name": "pool", **s} for s in unread))
    assert names == ["x+pool(static) tree.width=4", "x+pool(static) tree.width=8"]
    unread = [{"tree__width": w, "tree__candidates": k} for w, k in ((4, 32), (8, 64))]
    names, _ = named(*({"method": "dflash", "tree__name": "chain", **s} for s in unread))
    assert names == ["dflash tree.candidates=32", "dflash tree.candidates=64"]
    names, _ = named({}, {})
    assert len(set(names)) == 2 and names[0].startswith("dartree_pruned ")


def test_loops_and_caps_are_counted_beside_the_cells_they_flatter(sweep):
    run = mini_run(1)
    run[0].degenerate = True
    run[0].finish = run[3].finish = "length"
    write_run(sweep / "d", run, method="domino")
    row = next(row for row in comparison(folders(sweep))[1].rows if row[0].text == "domino")
    assert row[1].markdown.endswith("n = 4, 1 looping, 2 capped") and row[2].markdown.endswith(
        "n = 4"
    )


def test_every_table_says_on_what_and_how_it_was_measured(sweep):
    write_run(sweep / "d", mini_run(), benchmark__name="gsm8k")
    tables = comparison(folders(sweep))
    assert len(tables) == 5
    for table in tables:
        notes = "\n".join(table.notes)
        for piece in (
            "Some CPU (2 cores), 2 threads, bf16",
            "benchmark mini 1",
            "mean over turns",
            "n counts them",
        ):
            assert piece in notes or (piece == "benchmark mini 1" and "gsm8k" in table.title), (
                table.title,
                piece,
            )
        assert "all settings, budgets included, come from the configuration" in notes


def test_each_setting_gets_its_own_table_and_an_overview_stands_first(sweep):
    write_run(sweep / "e", mini_run(2), budget=128, benchmark__name="gsm8k")
    write_run(
        sweep / "f", mini_run(0), method="dflash", tree__name="chain", benchmark__name="gsm8k"
    )
    tables = comparison(folders(sweep), output=sweep)
    titles = [table.title for table in tables if "category" not in table.title]
    assert titles == ["overview", "comparison: benchmark=mini", "comparison: benchmark=gsm8k"]
    overview = tables[0]
    assert list(overview.headers) == ["run", "benchmark=mini", "benchmark=gsm8k"]
    shown = {
        row[0].markdown: [cell.markdown or cell.text for cell in row[1:]] for row in overview.rows
    }
    assert shown["dflash"][0].startswith("3.10 / ") and shown["dflash"][0].endswith("n = 12")
    assert set(shown) == {
        "dflash",
        "dartree_pruned tree.budget=16",
        "dartree_pruned tree.budget=128",
    }
    assert (
        shown["dartree_pruned tree.budget=16"][1] == "–"
        and shown["dartree_pruned tree.budget=128"][1][:4] == "5.10"
    )
    # Differences are taken inside a setting, where the prompts are the same.
    rows = {row[0].text.split("\n")[0]: row for row in tables[3].rows}
    assert rows["dflash"][3].text == "baseline" and rows["dartree_pruned"][3].text.startswith(
        "+2.00"
    )
    assert {row["settings"] for row in csv_rows(sweep / "comparison.csv")} == {
        "benchmark=mini",
        "benchmark=gsm8k",
    }
