"""Hydra's own settings: those without effect here are refused, whoever sets them; those we honour
work.
"""

from pathlib import Path
from typing import Any

import pytest

from dartree_exp.config import compose, config_hash
from dartree_exp.config.composition import first_mistake, groups, normalise
from dartree_exp.config.hydra_settings import HONOURED

TOY = ["model=toy", "drafter=random"]
REFUSED = {
    "hydra.job.chdir=true": "paths are relative to the folder",
    "hydra.run.dir=elsewhere": "output=FOLDER",
    "hydra.sweep.subdir=x": "named after their settings",
    "hydra.output_subdir=.hydra": "contains its config.yaml",
    "hydra.job.num=3": "not supported",
    "hydra.lancher.n_jobs=2": "did you mean hydra.launcher?",
    "hydra/help=default": "not supported",
    "+hydra.job.chdir=true": "not supported",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_setting_of_hydra_without_effect_is_refused(text: str) -> None:
    message = first_mistake([text])
    assert message is not None and REFUSED[text] in message
    assert message.startswith(text.lstrip("+").partition("=")[0])


def test_what_is_honoured_is_not_refused() -> None:
    assert {first_mistake([f"{key}=x"]) for key in HONOURED} == {None}
    assert (
        first_mistake(["hydra.job.chdir=false", "hydra.launcher.n_jobs=2", "hydra.job.env_set.X=1"])
        is None
    )


@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_a_file_that_sets_it_is_refused_as_well(
    multirun: list[str], runs: Any, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "method").mkdir(parents=True)
    (tmp_path / "mine" / "method" / "moving.yaml").write_text(
        "# @package _global_\nhydra:\n  job:\n    chdir: true\n"
    )
    assert (
        runs.code([*multirun, "--config-dir", "mine", *TOY, "method=moving", "tree.budget=1"]) == 2
    )
    assert "hydra.job.chdir=True: not supported" in capsys.readouterr().err
    assert not Path("multirun").exists() and runs.budgets == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "hydra/launcher=slurmm",
            "hydra/launcher=slurmm: no such option; allowed: basic, cores,",
        ),
        ("hydra/launcher=slurmm", "did you mean slurm"),
        ("hydra/sweeper=serch", "did you mean search?"),
        ("tree.width=${oc.env:NOPE}", "tree.width: KeyError"),
        ("tree.width=${tree.width}", "tree.width: Recursive"),
        ("output=${nowhere}", "output: Interpolation key 'nowhere' not found"),
    ],
)
@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_one_line_says_which_setting(
    multirun: list[str], text: str, said: str, runs: Any, capsys: pytest.CaptureFixture
) -> None:
    assert runs.code([*multirun, *TOY, text]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(Path().iterdir())


def test_settings_stand_on_either_side_of_a_flag(runs: Any) -> None:
    assert runs.code(["model=toy", "-m", "drafter=random", "tree.budget=1,2", "sweep.name=s"]) == 0
    assert runs.budgets == [1, 2]


@pytest.mark.parametrize("arguments", [["--cfg", "nothing"], ["-x"], ["--config-dir"]])
def test_a_flag_that_cannot_be_read_is_one_line(
    arguments: list[str], runs: Any, capsys: pytest.CaptureFixture
) -> None:
    assert runs.code([*arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_pattern_is_every_option_that_matches() -> None:
    assert normalise(["tree=glob(p*)"]) == ["tree=pool,pruned"]
    found = normalise(["+method=glob(*, exclude=[d*, h*, e*, j*, m*, s*, t*])"])
    assert found == ["method=adaflash,ar,chain_ddtree,ngram,pctree,ptd"]
    assert normalise(["tree=glob(*)"]) == [
        f"tree={','.join(groups()['tree'])}"
    ]  # the parts, `_shared`, are none


def test_every_method_by_pattern_is_a_sweep(runs: Any) -> None:
    assert (
        runs.code(
            [
                "-m",
                "model=toy",
                "method=glob(d*)",
                "drafter=random",
                "tree.scoring=marginal",
                "sweep.name=s",
            ]
        )
        == 0
    )
    assert runs.budgets
    folders = {status.parent.name for status in Path("multirun/s").glob("*/status.json")}
    one = ["model=toy", "drafter=random", "tree.scoring=marginal", "method=ddtree"]
    assert config_hash(compose(one)) in folders and len(folders) > 3
