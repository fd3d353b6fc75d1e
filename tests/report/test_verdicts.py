"""Tables and page begin with whether the outputs are right, and one wrong output cannot be
overlooked in any of them.
"""

import csv
import io

import pytest
from rich.console import Console

from dartree_exp.records import Run
from dartree_exp.records.files import write_json
from dartree_exp.report import LiveLine, run_tables
from dartree_exp.report.__main__ import main
from dartree_exp.report.verdicts import lead
from sample_records import mini_run, sample, write_run

WRONG = {"index": 7, "reason": "gap 9.1"}


def near_tie(id, **detail):
    return sample(id, [2, 3], verdict="near_tie", verdict_detail={"index": 1, **detail})


@pytest.fixture
def faces(tmp_path, capsys):
    """What the report shows of three runs, by where it shows it; `spoil` makes one output of the
    first one wrong.
    """

    def report(spoil):
        bad = mini_run(1)
        if spoil:
            bad[5].verdict, bad[5].verdict_detail = "wrong", WRONG
        end = (
            (lambda folder: folder.fail("1 of 12 outputs differ"))
            if spoil
            else (lambda folder: folder.done())
        )
        sweep = tmp_path / str(spoil)
        write_run(sweep / "a", bad, method="domino", end=end)
        write_run(sweep / "b", mini_run(0), budget=16)
        write_run(sweep / "c", mini_run(0), budget=32)
        arguments = ["--latex", "--published", "--swap", "tree", "--html", str(sweep / "page.html")]
        assert main([str(sweep), *arguments]) == 0
        text = {path.name: path.read_text() for path in sweep.iterdir() if path.is_file()}
        text |= {f"run {path.name}": path.read_text() for path in (sweep / "a").glob("table.*")}
        return text | {"terminal": capsys.readouterr().out}

    return report


def test_one_wrong_output_shows_everywhere(faces):
    shown = faces(spoil=True)
    for name in (
        "terminal",
        "comparison.md",
        "comparison.csv",
        "comparison.tex",
        "page.html",
        "published.md",
        "swap_tree.md",
    ):
        assert "1 WRONG of " in shown[name], name
    for name in ("run table.md", "run table.csv", "run table.tex"):
        assert "1 WRONG of 12" in shown[name], name
    assert "domino: p5 turn 0 at token 7 (gap 9.1)" in shown["terminal"]
    assert (
        shown["comparison.md"]
        .splitlines()[2]
        .startswith("**1 WRONG of 36 outputs; domino: p5 turn 0 at token 7")
    )
    assert "| **1 WRONG of 12**, 11 exact |" in shown["comparison.md"]
    assert r"\caption{Comparison. \textbf{1 WRONG of 36 outputs" in shown["comparison.tex"]
    assert r"\textbf{1 WRONG of 12}" in shown["comparison.tex"]
    page = shown["page.html"]
    assert page.index(
        '<p class="alarm" role="alert">1 WRONG of 36 outputs; domino: p5'
    ) < page.index("<h1>")
    assert page.count('<p class="alarm">1 WRONG of 36') >= 2 and 'class="bad">1 WRONG of 12' in page
    rows = list(csv.DictReader(shown["comparison.csv"].splitlines()))
    assert {
        row["outputs"] for row in rows if row["folder"] == "a" and row["category"] == "all"
    } == {"1 WRONG of 12"}


def test_the_control_shows_none(faces):
    for name, text in faces(spoil=False).items():
        assert "WRONG" not in text and 'class="alarm"' not in text, name
        assert "0 wrong of " in text, name


def test_a_wrong_output_is_red_in_a_terminal_and_in_the_live_line(tmp_path):
    run = mini_run()
    run[0].verdict, run[0].verdict_detail = "wrong", WRONG
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True, color_system="standard")
    run_tables(write_run(tmp_path / "run", run), console)
    assert "\x1b[1;31m1 WRONG of 12 outputs; p0 turn 0 at token 7" in out.getvalue()
    plain = io.StringIO()
    with LiveLine(12, Console(file=plain, width=160), every=0) as live:
        for record in run[:2]:
            live.update(record)
    assert "prompt 2/12  1 WRONG  tau" in plain.getvalue()


def test_exact_outputs_and_near_ties_come_next_with_the_largest_gap(tmp_path):
    run = [
        sample("a", [2]),
        near_tie("b", flips=2, gap_median=0.125, gap_max=0.25),
        near_tie("c", flips=1, gap_max=0.125),
    ]
    folder = write_run(tmp_path / "run", run)
    assert lead([Run(folder)]) == (
        "0 wrong of 3 outputs; 1 exact; 2 near ties, gap 0.25 at most",
        False,
    )
    run_tables(folder)
    [row] = csv.DictReader((folder / "table.csv").read_text().splitlines())
    assert (row["gap_max"], row["flips"], row["wrong"]) == ("0.25", "3", "0")


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"gaps": [0.0, 0.0625], "tolerance": 1.0}, "1 near tie, gap 0.0625 at most"),
        ({}, "1 near tie"),
    ],
)
def test_older_records_still_read(tmp_path, detail, said):
    run = Run(write_run(tmp_path / "run", [near_tie("a", **detail)]))
    assert lead([run])[0] == f"0 wrong of 1; 0 exact; {said}".replace("of 1;", "of 1 outputs;")
    assert run_tables(run).lead


def test_the_proof_in_fp32_stands_beside_the_table(tmp_path):
    runs = [
        write_run(tmp_path / name, [near_tie("a", gap_max=0.1), sample("b", [2])], method=name)
        for name in "xy"
    ]
    write_json(runs[0] / "summary.json", {"proof": {"dtype": "float32", "exact": 6, "of": 6}})
    table = run_tables(runs[0])
    assert table.lead.endswith("; 6 of 6 exact in fp32") and not table.alarm
    assert "6 of 6 exact in fp32" in (runs[0] / "table.md").read_text().splitlines()[2]
    assert lead([Run(path) for path in runs], "xy")[0].endswith(
        "6 of 6 exact in fp32 (proof of 1 of 2 runs)"
    )
    write_json(runs[0] / "summary.json", {"proof": {"dtype": "float32", "exact": 5, "of": 6}})
    failed = run_tables(runs[0])
    assert (
        failed.alarm
        and failed.rows[-1][-2].bad
        and "**0 wrong of 2**, 1 exact" in (runs[0] / "table.md").read_text()
    )


def test_what_passes_is_said_where_the_environment_says_it(tmp_path):
    def notes(**environment):
        return run_tables(
            write_run(tmp_path / str(environment), mini_run(), environment=environment)
        ).notes

    assert any(
        n.startswith("only exact passes here") for n in notes(row_invariant=True, tolerance=0.0)
    )
    assert any(
        "within 0.375 logits of the maximum" in n
        for n in notes(row_invariant=False, tolerance=0.375)
    )
    assert not any("passes here" in n or "near tie" in n for n in notes())


def test_outputs_whose_ids_differ_by_design_are_neither_wrong_nor_exact(tmp_path):
    drawn = [sample(id, [2, 3], verdict="unjudged", ar_ids=[1]) for id in "ab"]
    other = Run(write_run(tmp_path / "other", [sample("a", [2]), sample("b", [2])]))
    run = Run(write_run(tmp_path / "run", drawn))
    assert lead([run]) == ("2 not judged by ids", False)
    assert lead([run, other]) == ("0 wrong of 2 outputs; 2 exact; 2 not judged by ids", False)
    run_tables(run.path, Console(file=io.StringIO()))
    text = (run.path / "table.md").read_text()
    assert "not judged by ids" in text and "ids differ from plain decoding's by design" in text
    assert "wrong" not in text and "exact" not in text
