"""The published cells equal the papers', name their source, and are marked as published."""

import re

import pytest

from dartree_exp.config import compose
from dartree_exp.config.composition import groups
from dartree_exp.config.methods import known_methods
from dartree_exp.metrics.measures import point
from dartree_exp.records import Run
from dartree_exp.report.published import MARK, UNKNOWN_AR, not_here, published, published_tables
from golden_support import SHARED
from sample_records import mini_run, write_run

DATA_SETS = ("gsm8k", "math500", "aime25", "humaneval", "mbpp", "mt_bench", "alpaca", "average")
METHODS = {
    "DFlash": "dflash",
    "DDTree": "ddtree",
    "Domino": "domino",
    "DARTree fixed": "dartree_fixed",
    "DARTree pruned": "dartree_pruned",
}


def rows_of(name):
    return {
        (row.target, row.temperature, row.method): row for row in published() if row.set == name
    }


def test_a_few_cells_by_hand():
    cells = rows_of("dartree_table1")["Qwen3-4B", 0.0, "dartree_pruned"].cells
    assert cells["gsm8k"] == {"speedup": 9.73, "tau": 12.97} and cells["average"] == {
        "speedup": 6.99,
        "tau": 9.81,
    }
    built = rows_of("dartree_table2")["Qwen3-4B", 0.0, "heap_sequential"].cells["mt_bench"]
    assert built == {"tau": 7.369, "round_ms": 65.828, "speedup": 2.01}
    assert rows_of("dominotree_16")["Qwen3-4B", 0.0, "domino"].cells == {
        "average": {"speedup": 4.43, "tau": 7.17}
    }
    assert rows_of("dspark_table1")["Qwen3-14B", 1.0, "dspark"].cells["arena_hard"] == {"tau": 3.13}
    assert (
        rows_of("dartree_table4_gsm8k")["Qwen3-4B", 0.0, "dartree_adaptive"].cells["32"]["speedup"]
        == 2.25
    )


def test_every_row_has_a_source_hardware_and_a_cell():
    for row in published():
        assert row.source and row.hardware and row.target.startswith("Qwen3-") and row.cells, row
        for numbers in row.cells.values():
            assert all(0 < value < 5000 for value in numbers.values())
            assert numbers.get("tau", 1) >= 1


def test_the_averages_of_the_main_table_are_those_of_its_cells():
    """A slip of a digit in any cell of the main table would move its average."""
    for row in rows_of("dartree_table1").values():
        for key in ("tau", "speedup"):
            cells = [numbers[key] for name, numbers in row.cells.items() if name != "average"]
            assert len(cells) == 7
            assert sum(cells) / 7 == pytest.approx(row.cells["average"][key], abs=0.0151), (
                row.method,
                key,
            )


def test_the_main_table_is_the_fact_sheets():
    sheet = SHARED / "facts" / "dartree.md"
    if not sheet.exists():
        pytest.skip(f"no fact sheet at {sheet}")
    text = sheet.read_text()
    found, setting = {}, ()
    for line in text[text.index("### 8.1") : text.index("### 8.2")].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 10 and cells[1] in METHODS:
            setting = tuple(cells[0].split()) or setting
            pairs = [
                dict(zip(("speedup", "tau"), map(float, cell.split("/")), strict=True))
                for cell in cells[2:]
            ]
            key = (f"Qwen3-{setting[0]}", float(setting[1][1:]), METHODS[cells[1]])
            found[key] = dict(zip(DATA_SETS, pairs, strict=True))
    assert len(found) == 20
    assert {key: row.cells for key, row in rows_of("dartree_table1").items()} == found


def test_theirs_are_marked_and_ours_are_not(tmp_path):
    runs = [
        Run(write_run(tmp_path / "a", mini_run(1), benchmark__name="gsm8k")),
        Run(write_run(tmp_path / "b", mini_run(0), method="domino")),
    ]
    [table] = published_tables(runs)
    ours, theirs = table.rows[:2], table.rows[2:]
    assert table.rules == {1} and len(theirs) > 5
    assert all(MARK in row[0].text and row[0].values["source"] != "this report" for row in theirs)
    assert not any(MARK in row[0].text for row in ours)
    assert {row[0].values["method"].removesuffix(f" {MARK}") for row in theirs} == {
        "dartree_pruned",
        "domino",
    }
    assert table.notes[0].startswith(f"{MARK} published by others, on other hardware")
    assert not any(cell.best for row in table.rows for cell in row)
    gsm8k = list(table.headers).index("gsm8k")
    assert ours[0][gsm8k].text.startswith("4.1") and ours[1][gsm8k].text == "–"
    assert any(re.search(r"arXiv 2608\.13524", note) for note in table.notes)


def test_methods_nobody_published_give_no_table(tmp_path):
    assert published_tables([Run(write_run(tmp_path / "a", mini_run(), method="mine"))]) == []
    assert (
        published_tables([Run(write_run(tmp_path / "b", mini_run(), decoding__temperature=0.3))])
        == []
    )


PUBLISHED = sorted({row.method for row in published()} - not_here())


@pytest.mark.parametrize("method", PUBLISHED)
def test_every_published_method_is_the_name_of_a_run_of_ours_and_its_rows_appear(method, tmp_path):
    recorded = compose([f"+method={method}", "model=toy"]).method  # which has weights for each
    assert recorded == method
    rows = [row for row in published() if row.method == method and row.columns_are == "data sets"]
    assert rows or method == "ar"
    for temperature in {row.temperature for row in rows}:
        run = Run(
            write_run(
                tmp_path / f"{temperature}",
                mini_run(),
                method=recorded,
                decoding__temperature=temperature,
            )
        )
        [table] = published_tables([run])
        shown = [(row[0].values["target"], row[0].values["method"]) for row in table.rows[1:]]
        expected = [row.target for row in rows if row.temperature == temperature]
        assert sorted(shown) == sorted((target, f"{method} {MARK}") for target in expected)


def test_what_cannot_be_run_here_is_named_and_has_no_preset():
    assert not_here() <= {row.method for row in published()}
    assert not not_here() & set(known_methods())


def test_every_benchmark_of_the_papers_is_one_of_their_columns():
    columns = {column for row in published() for column in row.cells}
    names = {compose([f"benchmark={name}"]).benchmark.name for name in groups()["benchmark"]}
    assert names - columns == {"mini", "creative"}


def test_speedups_are_macro_on_both_sides_and_say_over_which_ar(tmp_path):
    run = Run(
        write_run(tmp_path / "a", mini_run(seed=3), benchmark__name="gsm8k", baseline="paired")
    )
    [table] = published_tables([run])
    macro, micro = (point(run.samples, name) for name in ("speedup_macro", "speedup"))
    assert f"{macro:.2f}" != f"{micro:.2f}"
    gsm8k = table.rows[0][list(table.headers).index("gsm8k")]
    assert gsm8k.values["gsm8k_speedup"] == macro and gsm8k.text.endswith(f"{macro:.2f}×")
    notes = "\n".join(table.notes)
    assert "ours: speedup over lean AR" in notes and "in the same process" in notes
    assert re.search(
        rf"{MARK} speedup over AR through the speculative loop.*DARTree, arXiv 2608.13524, Table 1",
        notes,
    )
    assert (
        f"{MARK} speedup over {UNKNOWN_AR}: Independent reproduction of DARTree, Table 1" in notes
    )
    assert "our row ar" not in notes
    assert "the papers' form" in notes and "the method's; prompts that fell back" not in notes


def test_a_run_of_plain_decoding_says_how_to_get_the_speedup_over_the_papers_ar(tmp_path):
    runs = [
        Run(write_run(tmp_path / "a", mini_run())),
        Run(write_run(tmp_path / "b", mini_run(), method="ar", baseline="shared")),
    ]
    [table] = published_tables(runs)
    assert any(
        note.startswith("our row ar: AR through the speculative loop") for note in table.notes
    )
    assert any("of the sweep, timed separately" in note for note in table.notes)
    assert table.rows[1][0].values["method"] == "ar"
