"""Every study is one affordable sweep, and runs whole on the toy target."""

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from dartree_exp.__main__ import main
from dartree_exp.config import compose
from dartree_exp.config.composition import groups
from dartree_exp.records.reader import find_runs

CONF = Path(__file__).parents[2] / "conf"
STUDIES = groups()["experiment"]
MOST_POINTS = 24
SMALL = ["benchmark.limit=1", "decoding.max_new_tokens=4", "engine.dtype=fp32", "engine.threads=1"]
PROMISED = {
    *("adaflash", "coupled", "dblast", "jetspec", "lengths", "libraspec"),
    *("all_methods", "three_arms", "pctree", "fig1", "block_size", "entropy"),
    *("budgets", "table1", "table2_construction", "table3_heads", "temperature"),
    *(
        "fig_width",
        "fig_budget",
        "fig_beta",
        "fig_candidates",
        "fig_width_budget_beta",
        "fig_survival",
    ),
}


def swept(study: str) -> dict[str, list[str]]:
    """The values that a study sweeps, by key."""
    params = OmegaConf.load(CONF / "experiment" / f"{study}.yaml").hydra.sweeper.params
    parser = OverridesParser.create()
    found = [parser.parse_override(f"{key}={value}") for key, value in params.items()]
    return {
        one.get_key_element(): list(one.sweep_string_iterator())
        if one.is_sweep_override()
        else [one.get_value_element_as_str()]
        for one in found
    }


def test_the_papers_studies_are_there() -> None:
    assert set(STUDIES) == PROMISED
    readme = (CONF / "experiment" / "README.md").read_text()
    assert all(f"`{study}`" in readme for study in STUDIES)


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_says_its_command_and_is_affordable(study: str) -> None:
    head = (CONF / "experiment" / f"{study}.yaml").read_text().splitlines()[:2]
    assert head == [
        "# @package _global_",
        f"# python -m dartree_exp +experiment={study}",
    ]  # Hydra wants its line first
    assert prod(map(len, swept(study).values())) <= MOST_POINTS
    config = compose([f"experiment={study}"])
    # What these compare are speedups.
    baseline = "paired" if study in ("budgets", "pctree") else "shared"
    assert (config.baseline, config.decoding.max_new_tokens, config.sweep.name) == (
        baseline,
        96,
        study,
    )
    assert config.repeats == (3 if study == "pctree" else 1)


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_caps_the_answers_of_our_own_prompts_alone(study: str) -> None:
    caps = {
        name: compose([f"experiment={study}", f"benchmark={name}"]).decoding.max_new_tokens
        for name in groups()["benchmark"]
    }
    assert caps == {name: 96 if name in ("mini", "creative") else 2048 for name in caps}
    assert {"mini", "gsm8k", "math500", "humaneval", "mt_bench"} <= set(caps)
    assert (
        compose([f"experiment={study}", "decoding.max_new_tokens=7"]).decoding.max_new_tokens == 7
    )


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_runs_on_the_toy_target(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = groups()
    missing = [
        f"{key}={value}"
        for key, values in swept(study).items()
        for value in values
        if key in options and value not in options[key]
    ]
    if missing:
        pytest.skip(f"not there yet: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    # To save time, of a knob the last value beside choices, else the first and the last; of choices
    # all.
    knobs = {key: values for key, values in swept(study).items() if "." in key}
    alone = knobs == swept(study)
    ends = {key: [values[0], values[-1]] if alone else values[-1:] for key, values in knobs.items()}
    narrowed = [f"{key}={','.join(values)}" for key, values in ends.items()]
    assert main([f"+experiment={study}", *narrowed, "model=toy", *SMALL]) == 0
    runs = find_runs(tmp_path / "multirun" / study)
    assert {run.state for run in runs} == {"DONE"}
    assert all(sample.verdict == "exact" for run in runs for sample in run.samples)
    for run in runs:
        sent = sum(round_.tree_size for round_ in run.rounds)
        assert sum(sample.verified or 0 for sample in run.samples) == sent
    # Points that differ only in what a method does not read would share a folder: no study here has
    # any.
    assert len(runs) == prod(map(len, {**swept(study), **ends}.values()))
    if runs[0].config["baseline"] == "shared":
        shared = (tmp_path / "multirun" / study / ".ar").iterdir()
        answers = {len(list(folder.iterdir())) for folder in shared}
        assert answers == {1}  # one prompt, decoded plainly once for each temperature


def test_one_command_is_one_multirun_and_the_command_line_wins(
    runs: Any, states: Callable[[str], dict]
) -> None:
    assert (
        runs.code(
            [
                "+experiment=fig_width",
                "model=toy",
                "drafter=random",
                "method=ddtree",
                "tree.width=3,5",
            ]
        )
        == 0
    )
    assert states("fig_width") == {"DONE": 1}  # DDTree does not read the width
    assert (
        runs.code(["+experiment=table1", "model=toy", "method=ar", "decoding.temperature=0,0.5,1"])
        == 0
    )
    assert states("table1") == {"DONE": 3}
