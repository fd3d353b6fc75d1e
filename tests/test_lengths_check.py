"""benchmarks/lengths.py on records made by hand: the modelled times, the best length, and that a
policy that is too slow fails.
"""

from importlib import import_module
from pathlib import Path

import pytest

from dartree_exp.errors import UserError
from dartree_exp.records import RoundRecord, Run
from sample_records import sample, write_run

FOLDER = Path(__file__).parents[1] / "benchmarks"
COSTS, OVERHEAD = [[1, 10.0], [11, 110.0]], 5.0  # 10 ms for each row
PLAIN = {"name": "fixed", "costs": [], "overhead": None, "alpha": 2.2, "most": 64}
PINNED = {**PLAIN, "name": "libraspec", "costs": COSTS, "overhead": OVERHEAD}


@pytest.fixture
def lengths(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("lengths")


def recorded(path, rounds, policy=PLAIN, budget=1, prompts=8, built=15, **more):
    """A run whose prompts all had these rounds: (drafts verified, tokens advanced)."""
    names = [f"p{i}" for i in range(prompts)]
    samples = [sample(name, [tokens for _, tokens in rounds]) for name in names]
    lines = [
        RoundRecord(
            id=name, turn=0, round=i, start=3 + i, root=1, accepted=list(range(1, tokens)),
            accepted_tokens=[1] * (tokens - 1), accepted_ranks=None, bonus=2, tree_size=nodes,
            supertree_size=built, tree_depth=nodes, tokens_advanced=tokens, emitted=tokens,
        )
        for name in names
        for i, (nodes, tokens) in enumerate(rounds)
    ]  # fmt: skip
    return write_run(
        path, samples, rounds=lines, policy=policy, budget=budget, tree__name="chain", **more
    )


def fixed(folder):
    recorded(folder / "one", [(1, 2)] * 6)  # (5 + 20) / 2 = 12.5 ms a token
    recorded(folder / "three", [(3, 3)] * 4, budget=3)  # (5 + 40) / 3 = 15 ms a token


def test_times_are_those_of_the_curve(lengths, tmp_path, capsys):
    fixed(tmp_path)
    recorded(tmp_path / "libra", [(1, 2), (3, 4)] * 2, PINNED, "auto")
    [found] = lengths.verdicts([Run(path) for path in sorted(tmp_path.iterdir())])
    assert (found.best, found.prompts, found.nodes) == (1, 8, 2)
    assert found.time == pytest.approx((25 + 45) / 6)
    assert (found.best_time, found.plain) == pytest.approx((12.5, 10))
    assert found.ratio.value == pytest.approx(70 / 6 / 12.5)
    assert found.ratio.low == pytest.approx(found.ratio.high)
    assert lengths.main([str(tmp_path)]) == 0
    assert "1 of 1 within 3%" in capsys.readouterr().out


def test_a_policy_that_is_too_slow_fails(lengths, tmp_path, capsys):
    """The control: (25 + 15) / 3 = 13.3 ms a token, 6.7 % more than the best length."""
    fixed(tmp_path)
    recorded(tmp_path / "libra", [(1, 2), (0, 1)] * 2, PINNED, "auto")
    assert lengths.main([str(tmp_path)]) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert lengths.main([str(tmp_path), "--within", "0.07"]) == 0


def test_rounds_without_a_draft_have_no_overhead(lengths, tmp_path):
    fixed(tmp_path)
    recorded(tmp_path / "resting", [(0, 1)] * 4, PINNED, "auto", built=0)
    [found] = lengths.verdicts([Run(path) for path in sorted(tmp_path.iterdir())])
    assert found.time == pytest.approx(10) == pytest.approx(found.plain)


def test_only_runs_that_differ_in_the_budget_alone_are_compared(lengths, tmp_path):
    fixed(tmp_path)
    recorded(tmp_path / "other", [(1, 2)], PINNED, "auto", drafter__name="dspark")
    measured = {**PINNED, "costs": []}
    recorded(tmp_path / "measured", [(1, 2)], measured, "auto")
    runs = [Run(path) for path in sorted(tmp_path.iterdir())]
    with pytest.raises(UserError, match="no run with pinned costs"):
        lengths.verdicts(runs)
    recorded(tmp_path / "pair", [(1, 2)], budget=1, drafter__name="dspark")
    [found] = lengths.verdicts([Run(path) for path in sorted(tmp_path.iterdir())])
    assert found.costs == COSTS and found.ratio.value == pytest.approx(1)


def test_only_prompts_that_all_finished_count(lengths, tmp_path):
    fixed(tmp_path)
    recorded(tmp_path / "libra", [(1, 2)], PINNED, "auto", prompts=5)
    [found] = lengths.verdicts([Run(path) for path in sorted(tmp_path.iterdir())])
    assert found.prompts == 5
    recorded(tmp_path / "none", [(1, 2)], {**PINNED, "alpha": 1.0}, "auto", prompts=0)
    with pytest.raises(UserError, match="no prompt was finished"):
        lengths.verdicts([Run(path) for path in sorted(tmp_path.iterdir())])
