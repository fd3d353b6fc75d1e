"""What a sweep will cost: counted from settings, and timed by what runs of this machine
recorded.
"""

import platform
from pathlib import Path

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.config.load import to_yaml
from dartree_exp.records import RunFolder
from dartree_exp.sweeps.estimate import estimate, most_turns, recorded_rates, work_left

TOY = ["model=toy", "drafter=random"]


def finished(
    folder: Path, overrides: list[str], own: float, lean: float, host: str = platform.node()
) -> None:
    config = compose([*TOY, *overrides])
    with RunFolder.open(folder / config_hash(config), to_yaml(config), config_hash(config)) as run:
        run.write_environment({"host": host})
        run.write_summary(
            {"tokens_per_second": {"value": own}, "ar_tokens_per_second": {"value": lean}}
        )
        run.done()


def test_work_is_counted_once_for_one_folder_and_not_for_a_finished_run(tmp_path: Path) -> None:
    points = [
        ["tree=chain", "tree.width=1"],
        ["tree=chain", "tree.width=2"],
        ["tree.budget=1"],
        ["tree.budget=2"],
    ]
    configs = [compose([*TOY, "decoding.max_new_tokens=10", *point]) for point in points]
    finished(tmp_path, ["decoding.max_new_tokens=10", "tree.budget=2"], 1, 1)
    work = work_left(configs, tmp_path)
    assert (work.runs, work.done, work.turns) == (2, 1, (48, 48))
    assert (work.drafted, work.plain) == (960, 960)
    shared = [
        compose([*TOY, "decoding.max_new_tokens=10", "baseline=shared", "repeats=3", *point])
        for point in points
    ]
    work = work_left(shared, tmp_path)
    assert (work.runs, work.turns, work.drafted, work.plain) == (3, (144, 144), 4320, 480)


def test_a_data_set_of_the_hub_is_not_fetched_to_be_counted() -> None:
    assert most_turns(compose(["benchmark=gsm8k"]).benchmark) == 128
    assert most_turns(compose(["benchmark=gsm8k", "benchmark.limit=5"]).benchmark) == 5
    unknown = compose(["benchmark=gsm8k", "benchmark.count=null"])
    assert most_turns(unknown.benchmark) is None
    [line] = estimate([unknown], Path("nowhere"))
    assert "no estimate of the time" in line


def test_the_time_rests_on_runs_of_this_target_and_machine(tmp_path: Path) -> None:
    config = compose(
        [*TOY, f"output={tmp_path}", "decoding.max_new_tokens=100", "benchmark.limit=1"]
    )
    assert recorded_rates(config) is None
    finished(tmp_path / "a", ["tree.budget=1"], 20, 10)
    finished(tmp_path / "b", ["tree.budget=2"], 40, 10)
    finished(tmp_path / "b", ["tree.budget=3"], 9000, 9000, host="another")
    finished(tmp_path / "b", ["model.family=qwen3"], 9000, 9000)
    rates = recorded_rates(config)
    assert rates is not None and (rates.drafted, rates.plain, rates.runs) == (30, 10, 2)
    [_, line] = estimate([config], tmp_path / "new")
    assert (
        "at most about 0:00:13 of decoding" in line and "medians of 2 finished runs of toy" in line
    )


def test_a_search_is_counted_by_its_trials(tmp_path: Path) -> None:
    config = compose([*TOY, "decoding.max_new_tokens=10", "benchmark.limit=2"])
    work = work_left([config], tmp_path, 20)
    assert (work.runs, work.drafted, work.plain) == (20, 400, 400)


@pytest.mark.parametrize("damage", ["{", "[]", '{"tokens_per_second": null}'])
def test_a_damaged_record_gives_no_rate(tmp_path: Path, damage: str) -> None:
    finished(tmp_path / "a", [], 20, 10)
    [summary] = tmp_path.glob("*/*/summary.json")
    summary.write_text(damage)
    assert recorded_rates(compose([*TOY, f"output={tmp_path}"])) is None
