"""The public settings match the snapshot, are declared without defaults, and are complete in
`conf/`.
"""

import dataclasses
from pathlib import Path
from typing import get_type_hints

import pytest
from omegaconf import OmegaConf

from dartree_exp.config import Config, compose
from dartree_exp.config.composition import Program, composed, groups
from dartree_exp.config.knobs import describe, knobs
from dartree_exp.config.load import load_config, to_yaml, typed
from dartree_exp.config.training import TrainConfig

SNAPSHOTS = {Config: "keys.txt", TrainConfig: "train_keys.txt"}
TRAIN = Program("train", TrainConfig)
PICKED = [f"{group}={option}" for group, options in groups().items() for option in options]
NEEDS = {
    "verify=rejection": ["method=speculative_sampling"],
    "model=toy": ["drafter=oracle"],
    "budget=confidence": ["drafter=dspark", "tree.budget=8"],
    "budget=fixed": ["tree.budget=8"],
    "budget=libraspec": ["tree=chain"],
    "budget=length_head": ["tree.budget=8"],
    "drafter=medusa": ["drafter.path=/x"],
    "drafter=eagle": ["drafter.path=/x"],
    "drafter=eagle2": ["drafter.path=/x"],
    "method=eagle2": ["drafter.path=/x"],
    "method=eagle3": ["drafter.path=/x"],
    "method=medusa": ["drafter.path=weights"],
    "drafter=jetspec": ["drafter.path=/x"],
    "drafter=treeflash": ["drafter.path=/x"],
    "method=treeflash": ["drafter.path=/x"],
    "drafter=dblast": ["drafter.path=/x"],
    "method=dblast": ["drafter.path=/x"],
    "method=dblast_tree": ["drafter.path=/x"],
    "method=jetspec": ["drafter.path=/x"],
    "drafter=adaflash": ["drafter.path=/x"],
    "method=adaflash": ["drafter.path=/x"],
    "drafter=lm": ["drafter.path=/x"],
    "method=draft_model": ["drafter.path=/x"],
}


@pytest.mark.parametrize("schema", SNAPSHOTS)
def test_public_keys_change_only_on_purpose(schema: type) -> None:
    """Adding, renaming or loosening a setting changes the snapshot, which a review sees."""
    lines = [f"{key}: {describe(hint, knob)}" for key, hint, knob in knobs(schema)]
    assert lines == Path(__file__).with_name(SNAPSHOTS[schema]).read_text().splitlines()


def test_no_default_hides_in_code() -> None:
    def check(schema: type) -> None:
        hints = get_type_hints(schema)
        for field in dataclasses.fields(schema):
            assert (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ), field.name
            if dataclasses.is_dataclass(hints[field.name]):
                check(hints[field.name])

    for program in SNAPSHOTS:
        check(program)


def test_every_setting_has_a_meaning() -> None:
    for key, _, knob in (*knobs(), *knobs(TrainConfig)):
        assert knob.meaning, key


@pytest.mark.parametrize("choice", PICKED)
def test_every_option_composes(choice: str) -> None:
    config = compose([choice, *NEEDS.get(choice, [])])
    group, option = choice.split("=")
    if group not in ("decoding", "experiment"):
        chosen = getattr(config, group)
        wanted = {"budget=auto": "cost_aware", "engine=auto": None}.get(choice, option)
        assert (chosen if isinstance(chosen, str) else chosen.name) == wanted


@pytest.mark.parametrize("stage", groups(program=TRAIN)["training"])
def test_every_training_composes(stage: str) -> None:
    overrides = [f"training={stage}"]
    config = typed(composed(overrides, TRAIN), TrainConfig, overrides)
    family = {"eagle": "eagle", "medusa": "medusa"}.get(stage, "dflash")
    stages = {"dspark": "head", "dblast": "head", "eagle": "backbone", "medusa": "backbone"}
    assert config.training.stage == stages.get(stage, stage) and config.training.family == family


def test_every_group_is_explained() -> None:
    readme = (Path(__file__).parents[2] / "conf" / "README.md").read_text()
    for group in {**groups(), **groups(program=TRAIN)}:
        assert f"`{group}`" in readme, group


def test_a_written_configuration_reads_back_as_itself() -> None:
    config = compose(["method=ddtree", "decoding.stop_ids=[1,2]", "tree.candidates=all"])
    assert load_config(OmegaConf.create(to_yaml(config))) == config
