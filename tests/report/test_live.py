"""The live line: right numbers, redrawn on a terminal, sparse plain lines elsewhere."""

import io

from rich.console import Console

from dartree_exp.report import LiveLine
from sample_records import sample


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def run_line(samples, *, terminal=False, step=2.0, total=None, **options):
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=120, force_terminal=terminal, color_system=None)
    with LiveLine(total or len(samples), console, now=clock, **options) as live:
        for record in samples:
            clock.seconds += step
            live.update(record)
        live.say("1 near tie [a]")
    return out.getvalue()


def test_plain_lines_say_where_the_run_stands():
    run = [sample("a", [2, 4], seconds=1, ar_seconds=2), sample("b", [5], seconds=1, ar_seconds=2)]
    lines = run_line(run, total=4, label="domino", every=0).splitlines()
    assert lines[0] == "domino prompt 1/4  tau 3.00  6.0 tok/s  2.00× AR  0:00:06 left"
    assert lines[1] == "domino prompt 2/4  tau 4.00  5.5 tok/s  2.00× AR  0:00:04 left"
    assert lines[2] == "1 near tie [a]"


def test_plain_lines_are_sparse_but_first_and_last_always_come():
    run = [sample(f"p{i}", [3]) for i in range(10)]
    lines = run_line(run, every=7).splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["1/10", "5/10", "9/10", "10/10"]


def test_a_resumed_run_counts_what_was_done_but_not_its_time():
    run = [sample(f"p{i}", [3]) for i in range(4)]
    (line, _) = run_line(run[2:3], total=4, done=run[:2], every=0).splitlines()
    assert line.startswith("prompt 3/4") and line.endswith("0:00:02 left")


def test_a_prompt_without_a_round_shows_no_number():
    failed = sample("x", [3], error={"type": "NonFiniteLogitsError"}, verdict=None)
    (line, _) = run_line([failed], total=2, step=4000).splitlines()
    assert line == "prompt 1/2  tau –  – tok/s  –× AR  1:06:40 left  1 failed"


def test_a_terminal_gets_one_line_redrawn_between_prompts():
    text = run_line([sample("a", [2, 4]), sample("b", [5])], terminal=True, label="domino")
    assert "2/2" in text and "tau 4.00" in text and "\x1b[" in text
    assert "1 near tie [a]" in text
