"""A checkpoint's config.json: slot layouts, unsupported values, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drafter_support import edit_config

from dartree_exp.config import compose
from dartree_exp.drafters import load_drafter as load_configured
from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.drafters.dflash.config import (
    CheckpointError,
    DFlashConfig,
    default_target_layer_ids,
    read_config,
)
from dartree_exp.errors import ConfigError


def _drop_layout(raw: dict[str, Any]) -> None:
    raw.pop("sample_from_anchor")
    raw["dflash_config"].pop("shift_label")


def test_unknown_layout_is_refused(saved: Callable):
    folder, target = saved()
    edit_config(folder, _drop_layout)
    with pytest.raises(
        CheckpointError, match=r"slot layout unknown.*sample_from_anchor.*shift_label"
    ):
        load_drafter(folder, target)


def test_unknown_layout_without_a_dflash_section_is_refused(saved: Callable):
    folder, target = saved(head=None)

    def flatten(raw: dict[str, Any]) -> None:
        _drop_layout(raw)
        raw.update(raw.pop("dflash_config"))

    edit_config(folder, flatten)
    with pytest.raises(CheckpointError, match="slot layout unknown"):
        load_drafter(folder, target)


def test_plain_dflash_is_fill_in_by_definition(saved: Callable):
    folder, target = saved(head=None, shift_label=False)
    edit_config(folder, _drop_layout)
    assert load_drafter(folder, target).num_drafts == 5


@pytest.mark.parametrize("kept", ["causal_head", "causal", "is_causal"])
def test_any_name_of_the_causal_mask_is_enough(saved: Callable, kept: str):
    folder, target = saved(head=None, causal=True)

    def drop(raw: dict[str, Any]) -> None:
        for name, place in (
            ("causal_head", raw["dflash_config"]),
            ("causal", raw["dflash_config"]),
            ("is_causal", raw),
        ):
            assert place[name] is True  # all are written
            if name != kept:
                del place[name]

    edit_config(folder, drop)
    assert load_drafter(folder, target).backbone.config.causal


def test_names_of_the_causal_mask_that_contradict_each_other_are_refused(saved: Callable):
    folder, target = saved(head=None, causal=True)
    edit_config(folder, lambda raw: raw.update(is_causal=False))
    with pytest.raises(CheckpointError, match=r"causal mask.*causal_head.*is_causal.*contradict"):
        load_drafter(folder, target)


def test_a_backbone_without_the_flag_is_bidirectional(saved: Callable):
    folder, target = saved(head=None)
    assert "causal" not in (folder / "config.json").read_text()
    assert not load_drafter(folder, target).backbone.config.causal


@pytest.mark.parametrize("causal", [False, True])
def test_a_setting_that_contradicts_the_mask_is_refused(saved: Callable, causal: bool):
    folder, target = saved(head=None, causal=causal)
    said = str(not causal).lower()
    settings = compose([f"drafter.path={folder}", "drafter=dflash", f"drafter.causal={said}"])
    with pytest.raises(ConfigError, match=rf"drafter\.causal={said}.*use drafter\.causal="):
        load_configured(settings.drafter, target)


@pytest.mark.parametrize("kept", ["sample_from_anchor", "shift_label"])
def test_either_name_of_the_layout_is_enough(saved: Callable, kept: str):
    folder, target = saved()

    def drop(raw: dict[str, Any]) -> None:
        raw.pop("sample_from_anchor") if kept == "shift_label" else raw["dflash_config"].pop(
            "shift_label"
        )

    edit_config(folder, drop)
    assert load_drafter(folder, target).num_drafts == 6


def test_contradicting_layouts_are_refused(saved: Callable):
    folder, target = saved()
    edit_config(folder, lambda c: c.update(sample_from_anchor=False))
    with pytest.raises(CheckpointError, match=r"slot layout: .*contradict"):
        load_drafter(folder, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c.update(architectures=["DFlash2Model"]),
            "architectures = .*DFlash2Model.*allowed",
        ),
        (
            lambda c: c.update(layer_types=["full_attention", "sliding_attention"]),
            "layer_types = .*sliding_attention",
        ),
        (lambda c: c.update(attention_bias=True), "attention_bias = true"),
        (lambda c: c.update(hidden_act="gelu"), "hidden_act = 'gelu'"),
        (lambda c: c.update(rope_scaling={"rope_type": "yarn"}), "rope_scaling.rope_type = 'yarn'"),
        (lambda c: (c.pop("rope_theta"), c.pop("rope_parameters")), "rope_theta: missing"),
        (lambda c: c.update(rope_theta=5.0), "rope_theta: .*contradict each other"),
        (
            lambda c: (c.pop("block_size"), c["dflash_config"].pop("block_size")),
            "block_size: missing",
        ),
        (lambda c: c.update(block_size=5), "block_size: .*contradict each other"),
        (lambda c: c.update(block_size="16"), "block_size = '16': must be an integer"),
        (
            lambda c: c["dflash_config"].pop("pure_draft_prefix_len"),
            "pure_draft_prefix_len: missing",
        ),
        (
            lambda c: c["dflash_config"].update(pure_draft_prefix_len=7),
            r"pure_draft_prefix_len = 7: .*0\.\.6",
        ),
        (lambda c: c["dflash_config"].update(mask_token_id=40), r"mask_token_id = 40: .*0\.\.39"),
        (
            lambda c: c["dflash_config"].update(target_layer_ids=[0, 3]),
            r"target_layer_ids = \[0, 3\]: .*-1\.\.2",
        ),
        (
            lambda c: c["dflash_config"].update(projector_type="mystery"),
            "projector_type = 'mystery'",
        ),
        (lambda c: c["dflash_config"].update(use_bias_gate=True), "use_bias_gate = true"),
    ],
)
def test_unsupported_configs_are_refused_by_key_and_value(
    saved: Callable, change: Callable, message: str
):
    folder, target = saved()
    edit_config(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load_drafter(folder, target)


def test_restriction_and_its_size_must_agree(saved: Callable):
    folder, target = saved(torch.tensor([4, 5, 6]))
    edit_config(folder, lambda c: c.update(draft_vocab_size=4))
    with pytest.raises(CheckpointError, match="t2d marks 3 ids, draft_vocab_size = 4"):
        load_drafter(folder, target)
    edit_config(folder, lambda c: c.pop("draft_vocab_size"))
    with pytest.raises(CheckpointError, match="unexpected tensors t2d"):
        load_drafter(folder, target)


def test_transformers_5_rope_and_nested_block_size(saved: Callable):
    folder, _ = saved()

    def modern(raw: dict[str, Any]) -> None:
        raw["rope_parameters"] = {"rope_type": "default", "rope_theta": raw.pop("rope_theta") / 2}
        raw["dflash_config"]["block_size"] = raw.pop("block_size")

    edit_config(folder, modern)
    config = read_config(folder)
    assert config.rope_theta == 500_000.0 and config.block_size == 6


def test_default_layers_round_half_to_even():
    assert default_target_layer_ids(5, 36) == [1, 9, 17, 25, 33]
    assert default_target_layer_ids(1, 7) == [3]
    assert default_target_layer_ids(3, 9) == [1, 4, 6]  # 3.5 rounds to 4


def test_config_round_trip(small_config: Callable[..., DFlashConfig]):
    for changes in ({}, {"shift_label": False}, {"draft_vocab_size": 7}):
        config = small_config(**changes)
        assert DFlashConfig.from_json(config.to_json()) == config
