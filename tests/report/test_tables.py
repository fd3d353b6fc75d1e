"""The table of one run says what its records say, in three faces, and never hides what qualifies
it.
"""

import csv
import io
import re

import pytest
from rich.console import Console

from dartree_exp.records import RecordError, RunFolder
from dartree_exp.report import footer, run_tables
from sample_records import mini_run, sample, write_run


def shown(folder, width=200, terminal=False):
    out = io.StringIO()
    table = run_tables(
        folder, Console(file=out, width=width, force_terminal=terminal, color_system=None)
    )
    return table, out.getvalue()


def csv_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_numbers_agree_in_terminal_markdown_and_csv(tmp_path):
    run = [
        sample("a", [2, 4], category="math", seconds=1, ar_seconds=2),
        sample("b", [5], category="code", seconds=1),
    ]
    run += [sample("c", [3, 3], category="math", seconds=1, ar_seconds=2)]
    _, text = shown(write_run(tmp_path / "run", run))
    rows = csv_rows(tmp_path / "run" / "table.csv")
    assert [row["category"] for row in rows] == ["math", "code", "all"]
    everything = rows[-1]
    assert everything["n"] == everything["turns"] == "3"
    assert float(everything["tau_macro"]) == pytest.approx((3 + 5 + 3) / 3)
    assert float(everything["tau_micro"]) == pytest.approx(17 / 5)
    assert float(everything["speedup"]) == pytest.approx(8 / 3)
    assert (
        float(everything["speedup_low"])
        <= float(everything["speedup"])
        <= float(everything["speedup_high"])
    )
    shares = [
        float(everything[f"share_{s}"])
        for s in ("draft", "build", "mask", "verify", "commit", "other")
    ]
    assert shares == pytest.approx([0.25, 0, 0, 0.5, 0, 0.25])
    assert (
        rows[1]["tau_macro"] == "5.0" and rows[1]["tau_macro_low"] == ""
    )  # one prompt has no interval
    markdown = (tmp_path / "run" / "table.md").read_text()
    row = next(line for line in markdown.splitlines() if line.startswith("| all"))
    assert re.search(r"\| 3 \| 3\.67 \[3\.00, 5\.00\] \| 3\.40 \[", row)
    assert (
        "2.67× [" in row
        and "25/0/0/50/0/25" in row
        and row.endswith("| 0 wrong of 3, 3 exact | – |")
    )
    for piece in ("3.67", "3.00…5.00", "2.67×", "25/0/0/50/0/25", "3 exact"):
        assert piece in text


def test_the_footer_says_what_a_number_needs(tmp_path):
    _, text = shown(write_run(tmp_path / "run", mini_run()))
    for piece in (
        "target smollm2_135m, benchmark mini 1, greedy (T = 0), at most 192 new tokens",
        "drafter domino, tree pruned (budget 64, width 12, beta -0.2, candidates 64)",
        "cpu, Some CPU (2 cores), 2 threads, bf16, torch 2.13.0, amx_bf16",
        "tau macro: mean over turns of the turn's mean",
        "tau micro: tokens advanced / rounds",
        "speedup: AR decode seconds per token after the first",
        "95% percentile bootstrap over prompts, 5000 resamples of distinct prompts; n counts them",
        "tokens/s against 25.0 of lean AR",
    ):
        assert piece in text
        assert piece in (tmp_path / "run" / "table.md").read_text()


def test_the_footer_names_no_knob_that_the_tree_does_not_read(tmp_path):
    table, _ = shown(write_run(tmp_path / "run", [sample("a", [2])], tree__name="fixed"))
    assert "drafter domino, tree fixed (budget 64, candidates 64)" in table.notes


def test_failures_wrong_verdicts_and_fallbacks_are_shown(tmp_path):
    run = mini_run(prompts=4)
    run[0].verdict, run[0].verdict_detail = "wrong", {"position": 7}
    run[1].verdict = "near_tie"
    run[2].verdict, run[2].error = (
        None,
        {"type": "NonFiniteLogitsError", "message": "draft logits: NaN in round 2"},
    )
    run[3].degenerate, run[3].finish = True, "length"
    run.append(
        sample("long", [], emitted=5, fallback="prompt of 900 tokens, the drafter takes 512")
    )
    table, text = shown(
        write_run(tmp_path / "run", run, end=lambda folder: folder.fail("1 wrong verdict"))
    )
    assert "FAILED, 13 of 13 samples: 1 wrong verdict" in table.notes
    assert "failed: p2 turn 0: draft logits: NaN in round 2" in table.notes
    assert "WRONG: p0 turn 0: {'position': 7}" in table.notes
    assert "decoded by AR: long turn 0: prompt of 900 tokens, the drafter takes 512" in table.notes
    everything = csv_rows(tmp_path / "run" / "table.csv")[-1]
    expected = dict(
        exact="10", near_tie="1", wrong="1", failed="1", fallbacks="1", degenerate="1", capped="1"
    )
    assert {key: everything[key] for key in expected} == expected
    for piece in (
        "10 exact",
        "1 near tie",
        "1 WRONG of 12",
        "1 failed",
        "1 by AR",
        "1 looping",
        "1 capped",
    ):
        assert piece in text


def test_a_long_list_of_failures_is_cut(tmp_path):
    run = mini_run(prompts=3)
    for record in run:
        record.verdict, record.error = None, {"type": "NonFiniteLogitsError"}
    table, _ = shown(write_run(tmp_path / "run", run))
    assert "failed: and 4 more" in table.notes
    assert sum(note.startswith("failed: p") for note in table.notes) == 5


def test_a_run_that_goes_on_is_marked(tmp_path):
    with RunFolder.open(tmp_path, "method: domino\n", "hash") as folder:
        folder.expect(48)
        table, _ = shown(tmp_path)
        assert table.notes[0] == "RUNNING, 0 of 48 samples"
        assert table.rows[-1][1].text == "0" and table.rows[-1][2].text == "–"
        folder.append(sample("a", [3]))
        table, _ = shown(tmp_path)
        assert table.notes[0] == "RUNNING, 1 of 48 samples"
        folder.expect(1)  # the run's own table, drawn just before it says how it ended
        assert not any("RUNNING" in note for note in shown(tmp_path)[0].notes)


def test_clock_and_machine_caveats(tmp_path):
    gpu = {"device": "cuda:0", "device_details": {"name": "Some GPU"}}
    table, _ = shown(write_run(tmp_path / "run", mini_run(), environment=gpu, protocol="paper"))
    assert any(note.startswith("protocol=paper: the first draft") for note in table.notes)
    assert any(note.startswith("stages were timed without synchronising") for note in table.notes)
    assert any(note.startswith("Some GPU, Some CPU") for note in table.notes)
    profiled = write_run(tmp_path / "profiled", mini_run(), environment=gpu, engine__profile=True)
    assert not any("without synchronising" in note for note in shown(profiled)[0].notes)
    lossy = mini_run(exact=False)
    assert any(
        note.startswith("LOSSY") for note in shown(write_run(tmp_path / "lossy", lossy))[0].notes
    )


def test_a_narrow_terminal_loses_nothing(tmp_path):
    _, text = shown(write_run(tmp_path / "run", mini_run()), width=80, terminal=True)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "2.79…3.40" in text and "25/0/0/50/0/25" in text and "…  " not in text


def test_a_log_file_gets_the_width_the_table_needs(tmp_path):
    _, text = shown(write_run(tmp_path / "run", mini_run()), width=20)
    assert any("math" in line and "0 wrong of 4" in line for line in text.splitlines())


def test_the_table_cannot_be_written_where_there_is_no_run(tmp_path):
    with pytest.raises(RecordError, match="not a run folder"):
        run_tables(tmp_path)


@pytest.mark.parametrize(
    ("tree", "temperature", "shown"),
    [
        ({"name": "heap"}, 0, "tree heap (budget 64, beta -0.2, candidates 64)"),
        ({"name": "pool"}, 0, "tree pool (budget 64, width 4, candidates 64)"),
        (
            {"name": "heap", "candidates_follow_budget": True},
            0,
            "(budget 64, beta -0.2, candidates min(budget, vocabulary))",
        ),
        (
            {"name": "chain", "draft_sampling": "release"},
            1,
            "(budget 64, candidates 64, draft sampling release)",
        ),
        (
            {"name": "chain", "draft_sampling": "argmax"},
            1,
            "(budget 64, candidates 64, draft sampling argmax)",
        ),
        (
            {"name": "chain", "draft_sampling": "release"},
            0,
            "(budget 64, candidates 64)",
        ),  # nothing is sampled
    ],
)
def test_a_tree_is_described_by_the_settings_it_reads(tree, temperature, shown):
    knobs = {"budget": 64, "width": 4, "beta": -0.2, "candidates": 64, **tree}
    config = {
        "drafter": {"name": "domino"},
        "tree": knobs,
        "decoding": {"temperature": temperature},
    }
    assert footer.method(config).endswith(shown)
