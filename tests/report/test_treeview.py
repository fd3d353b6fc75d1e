"""A recorded round in the terminal: the path, the siblings, what was pruned; and a good word where
there is none.
"""

import io

import pytest
from rich.console import Console

from dartree_exp.records import Run
from dartree_exp.report.__main__ import main
from dartree_exp.report.treeview import print_tree, viewer_data
from sample_records import mini_run, recorded_run, write_run


def test_the_terminal_shows_path_siblings_and_pruned_nodes(tmp_path, capsys):
    path = recorded_run(tmp_path / "run")
    assert main([str(path), "--tree", "a:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a turn 0, round 1: 3 tokens advanced, 4 nodes verified of 6 scored"
    assert lines[1] == "draft 10.0 ms, verify 20.0 ms"
    assert lines[2] == "…once upon w0 w1 w2 tail"
    drawn = [line.lstrip("│├└─ ") for line in lines[3:]]
    assert drawn == [
        "·w0",
        "·w1  -0.69 #0",
        "·w2  -1.39 #0",
        "·tail  the target's own token",
        "·w3  -2.08 #0",
        "·w5  -2.09 #1",
        "pruned: ·w4 (2 nodes with their descendants)",
    ]


def test_a_turn_can_be_named(tmp_path, capsys):
    path = recorded_run(tmp_path / "run")
    assert main([str(path), "--tree", "a/0:2"]) == 0
    assert "round 2: 4 tokens advanced" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("a:9", "--tree a:9: no such tree in"),
        ("b:0", "recorded: a rounds 0 to 2"),
        ("a", "--tree a: must be SAMPLE:ROUND, such as a:0"),
        ("a:x", "must be SAMPLE:ROUND"),
    ],
)
def test_a_round_that_was_not_recorded_is_said_with_those_that_were(tmp_path, capsys, place, said):
    path = recorded_run(tmp_path / "run")
    assert main([str(path), "--tree", place]) == 2
    assert said in capsys.readouterr().err


def test_a_sweep_and_an_old_run_are_refused_with_the_reason(tmp_path, capsys):
    write_run(tmp_path / "a", mini_run())
    assert main([str(tmp_path / "a"), "--tree", "p0:0"]) == 2
    assert "recorded: none (record.trees=all force=true records all)" in capsys.readouterr().err
    write_run(tmp_path / "b", mini_run())
    assert main([str(tmp_path), "--tree", "p0:0"]) == 2
    assert "there are 2 runs: name one folder" in capsys.readouterr().err


def test_token_text_is_never_markup(tmp_path):
    run = Run(recorded_run(tmp_path / "run", text="[bold]x[/]"))
    out = io.StringIO()
    print_tree(Console(file=out, width=200), run.trees[0])
    assert "[bold]x[/]" in out.getvalue()


def test_the_page_gets_what_was_recorded_and_says_what_it_leaves_out(tmp_path):
    run = Run(recorded_run(tmp_path / "run"))
    [data] = viewer_data([run], ["mine"], most=2)
    assert data["name"] == "mine" and data["left_out"] == 1
    [shown] = data["samples"]
    assert shown["id"] == "a" and len(shown["rounds"]) == 2
    first = shown["rounds"][0]
    assert (
        first["state"] == [2, 2, 1, 1, 0, 1, 0]
        and first["last"] == 1
        and first["ms"] == {"draft": 10.0, "verify": 20.0}
    )
    assert first["step"][1:4] == pytest.approx([0.5, 0.5, 0.5], abs=1e-3)
