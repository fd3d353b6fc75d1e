"""Text of records cannot drive a terminal, reorder what is read or become a formula; a refusing
disk costs no table.
"""

import csv
import io
import subprocess
import sys

import pytest
from rich.console import Console

from dartree_exp.console.printable import printable, printable_line
from dartree_exp.records import Run
from dartree_exp.report import LiveLine, run_tables
from dartree_exp.report.__main__ import main
from dartree_exp.report.table import Cell, Table
from dartree_exp.sweeps.watch import main as watch
from sample_records import mini_run, recorded_run, sample, write_run

EVIL = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnp.exe [red]x[/y] $x^$ :smile:"
UNSAFE = ("\x1b", "\x07", "\x9b", "\u202e", "\x00", "\r")


def is_safe(text):
    return not any(char in text for char in UNSAFE)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\u202eb\u2066c\u200ed", r"a\u202eb\u2066c\u200ed"),
        ("a\rb\x00\x7f\x85\u2028", r"a\rb\x00\x7f\x85\u2028"),
        ("half \ud800", r"half \ud800"),
        ("line\n\ttab Δ × … – 中 é", "line\n\ttab Δ × … – 中 é"),
    ],
)
def test_what_drives_a_terminal_is_written_out(text, safe):
    assert printable(text) == safe and printable_line(text) == safe.replace("\n", r"\n")


@pytest.fixture
def hostile(tmp_path):
    """A sweep whose ids, categories, messages, errors and method name try to do harm."""
    run = mini_run()
    for record in run:
        record.id = f"{record.id}{EVIL}"
        record.category += EVIL
    run[0].verdict, run[0].verdict_detail = "wrong", {"index": 1, "reason": EVIL}
    run[1].verdict, run[1].error = None, {"type": "E", "message": EVIL}
    run.append(sample(f"fallback{EVIL}HALF", [], emitted=3, fallback=EVIL))
    bad = write_run(
        tmp_path / "a", run, method=f"domino{EVIL}", end=lambda folder: folder.fail(EVIL)
    )
    lines = (bad / "samples.jsonl").read_text()
    (bad / "samples.jsonl").write_text(
        lines.replace("HALF", r"\ud800")
    )  # ours never writes half a surrogate pair
    write_run(tmp_path / "b", mini_run(1))
    write_run(tmp_path / "c", mini_run(2), budget=16)
    return tmp_path


def test_no_control_character_reaches_terminal_or_tables(hostile, capsys):
    assert (
        main(
            [
                str(hostile),
                "--latex",
                "--swap",
                "tree",
                "--published",
                "--html",
                str(hostile / "page.html"),
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert (
        is_safe(out)
        and is_safe(err)
        and r"domino\x1b[2J\x1b]0;owned\x07" in out
        and ":smile:" in out
    )
    files = [path for path in hostile.rglob("*") if path.suffix in (".md", ".csv", ".tex")]
    assert len(files) >= 3 * 3 + 3
    for path in files:
        assert is_safe(path.read_text()), path
    assert main([str(hostile), "--baseline", EVIL]) == 2
    out, err = capsys.readouterr()
    assert is_safe(err) and err.count("\n") == 1


def test_the_hostile_page_is_escaped_as_before(hostile):
    write_run(hostile / "d", mini_run(), method="<script>alert(1)</script>")
    assert main([str(hostile), "--html", str(hostile / "page.html")]) == 0
    text = (hostile / "page.html").read_text()
    assert "<script>alert(1)" not in text and "&lt;script&gt;alert(1)" in text


def test_one_run_the_live_line_the_tree_and_watch_are_safe_too(hostile, capsys):
    out = io.StringIO()
    run_tables(hostile / "a", Console(file=out, width=200))
    for terminal in (False, True):
        console = Console(
            file=out, width=200, force_terminal=terminal, color_system=None, legacy_windows=False
        )
        with LiveLine(3, console, label=EVIL, every=0) as live:
            live.update(Run(hostile / "a").samples[0])
            live.say(EVIL)
    plain = out.getvalue()
    for sequence in (
        "\x1b[?25l",
        "\x1b[?25h",
        "\x1b[2K",
        "\x1b[1A",
        "\r",
    ):  # rich's own, which move its line
        plain = plain.replace(sequence, "")
    assert is_safe(plain) and plain.count("[red]x[/y]") >= 4 and plain.count(":smile:") >= 4
    recorded_run(hostile / "trees" / "t", text=EVIL)
    assert main([str(hostile / "trees" / "t"), "--tree", "a:0"]) == 0
    assert watch([str(hostile)]) == 0
    shown = capsys.readouterr().out
    assert is_safe(shown) and r"\x1b[2J" in shown and "[red]x[/y]" in shown.replace("\n", "")


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]


def test_text_in_a_csv_is_never_a_formula_and_numbers_stay_numbers():
    rows = [
        [Cell("x", {"run": text, "value": -0.2, "text number": "-0.2"})]
        for text in [*FORMULAS, "plain -1"]
    ]
    read = list(csv.DictReader(io.StringIO(Table("", ["x"], rows).csv())))
    assert [row["run"] for row in read] == [
        *(f"'{text}" for text in FORMULAS[:-1]),
        r"\r=1",
        "plain -1",
    ]
    assert {(row["value"], row["text number"]) for row in read} == {("-0.2", "-0.2")}


def test_names_of_a_run_are_no_formulas(tmp_path):
    run = mini_run()
    for record in run[::3]:
        record.category = '=HYPERLINK("http://x","y")'
    run_tables(write_run(tmp_path / "run", run))
    rows = list(csv.DictReader((tmp_path / "run" / "table.csv").read_text().splitlines()))
    assert rows[0]["category"] == '\'=HYPERLINK("http://x","y")' and float(rows[0]["tau_macro"]) > 0


def test_a_request_that_fails_does_not_take_the_page_with_it(tmp_path, capsys):
    for index, budget in enumerate((16, 64)):
        write_run(tmp_path / f"run{index}", mini_run(index), budget=budget)
    assert (
        main(
            [
                str(tmp_path),
                "--swap",
                "nothing",
                "--swap",
                "tree.budget",
                "--html",
                str(tmp_path / "page.html"),
            ]
        )
        == 2
    )
    assert capsys.readouterr().err == (
        "error: --swap nothing: no such setting in these runs; try drafter, tree, tree.width, "
        "tree.budget\n"
    )
    assert (tmp_path / "swap_tree.budget.md").exists() and "swapping tree.budget" in (
        tmp_path / "page.html"
    ).read_text()


REFUSING = (
    "import resource, signal, sys\nfrom dartree_exp.report.__main__ import main\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, "
    "0))\n"
    "sys.exit(main(sys.argv[1:]))"
)


def test_a_disk_that_takes_no_byte_costs_no_table(tmp_path):
    """The kernel refuses every write to a file, as a full disk does."""
    for index, budget in enumerate((16, 64)):
        write_run(tmp_path / f"run{index}", mini_run(index), budget=budget)
    before = sorted(tmp_path.rglob("*"))
    command = [
        sys.executable,
        "-c",
        REFUSING,
        str(tmp_path),
        "--latex",
        "--swap",
        "tree.budget",
        "--published",
    ]
    done = subprocess.run(
        [*command, "--html", str(tmp_path / "page.html")], capture_output=True, text=True
    )
    assert done.returncode == 2
    for title in (
        "comparison",
        "tau macro by category",
        "swapping tree.budget",
        "beside published numbers",
    ):
        assert title in done.stdout
    assert (
        done.stderr.count("\n") == 1
        and "tables are complete above, but could not write" in done.stderr
    )
    assert "page.html" not in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_an_output_that_cannot_be_a_file_or_a_folder_is_one_line(tmp_path, capsys):
    write_run(tmp_path / "run", mini_run())
    (tmp_path / "run" / "table.md").mkdir()
    (tmp_path / "file").write_text("")
    outputs = ["--html", str(tmp_path / "file" / "page.html"), "--plots", str(tmp_path / "file")]
    assert main([str(tmp_path / "run"), *outputs]) == 2
    out, err = capsys.readouterr()
    assert "0 wrong of 12 outputs" in out and err.count("\n") == 1
    assert "could not write" in err and str(tmp_path / "run" / "table.md") in err
