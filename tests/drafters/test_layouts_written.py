"""Drafters written in every layout that serving engines load, and read again."""

import json

import pytest
import torch
from drafter_support import edit_config, edit_tensors
from safetensors.torch import load_file

from dartree_exp.drafters.dflash.checkpoint import load_drafter, read_checkpoint
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.errors import UserError
from dartree_exp.training.convert import block_logits, convert

KEPT = torch.tensor([2, 3, 17, 30, 38])
HEADS = ("vanilla", "gated", "rnn")


@pytest.fixture
def drafter(saved, head_alone):
    """(folder, target) by head: none, gru, or a kind of Markov head, with or without a drafting
    vocabulary.
    """

    def make(head, ids=None):
        if head in HEADS:
            folder, _, target = head_alone(head, ids)
        else:
            folder, target = saved(ids, **({} if head == "gru" else {"head": None}))
        return folder, target

    return make


@pytest.mark.parametrize("ids", [None, KEPT], ids=["whole", "restricted"])
@pytest.mark.parametrize(
    "layout,head",
    [("zlab", "none"), ("zlab", "gru"), ("speculators", "none"), ("dspark", "none")]
    + [(layout, head) for layout in ("dspark", "speculators") for head in HEADS],
)
def test_block_logits_are_the_same(drafter, tmp_path, layout, head, ids):
    folder, target = drafter(head, ids)
    out = tmp_path / "served"
    convert(folder, layout, out, target)
    assert torch.equal(block_logits(out, target), block_logits(folder, target))
    made = load_drafter(out, target)
    assert made.num_drafts == 6 and made.target_layer_ids == (0, 2)
    raw = json.loads((out / "config.json").read_text())
    assert raw["sample_from_anchor"] is True and "auto_map" not in raw


def test_the_names_and_shapes_of_a_dspark_speculator(drafter, tmp_path):
    folder, target = drafter("gated", KEPT)
    convert(folder, "speculators", tmp_path / "served", target)
    raw = json.loads((tmp_path / "served" / "config.json").read_text())
    assert raw["speculators_model_type"] == raw["speculators_config"]["algorithm"] == "dspark"
    assert raw["aux_hidden_state_layer_ids"] == [1, 3]  # inputs of layers; ours are outputs
    assert raw["draft_vocab_size"] == 5 and raw["sliding_window_non_causal"] is True
    assert raw["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 6
    assert raw["speculators_config"]["verifier"] == {
        "name_or_path": "stub",
        "architectures": ["StubForCausalLM"],
    }
    assert raw["transformer_layer_config"]["num_hidden_layers"] == 2
    tensors = load_file(tmp_path / "served" / "model.safetensors")
    assert tensors["markov_head.markov_w1.weight"].shape == (40, 6)
    assert tensors["markov_head.markov_w2.weight"].shape == (5, 6)
    assert tensors["lm_head.weight"].shape == (5, 32)
    assert tensors["embed_tokens.weight"].shape == (40, 32)
    assert torch.equal(tensors["d2t"] + torch.arange(5), KEPT)
    assert torch.equal(tensors["t2d"].nonzero().flatten(), KEPT)
    assert all(value.isfinite().all() for value in tensors.values())


def test_a_causal_backbone_is_said_to_be_one(saved, tmp_path):
    folder, target = saved(head=None, causal=True)
    for layout in ("zlab", "speculators"):
        convert(folder, layout, tmp_path / layout, target)
        assert read_checkpoint(tmp_path / layout).config.causal


def test_heads_that_a_layout_does_not_have_are_refused(drafter, tmp_path):
    folder, target = drafter("gru")
    for layout in ("speculators", "dspark"):
        with pytest.raises(UserError, match="gru head"):
            convert(folder, layout, tmp_path / layout, target)


def test_a_markov_head_has_no_place_in_zlabs_layout(drafter, tmp_path):
    folder, target = drafter("vanilla")
    with pytest.raises(UserError, match=r"--layout zlab: has no markov head"):
        convert(folder, "zlab", tmp_path / "served", target)


def test_a_folder_with_files_is_not_overwritten(drafter, tmp_path):
    folder, target = drafter("none")
    with pytest.raises(UserError, match="is not empty"):
        convert(folder, "zlab", folder, target)


@pytest.fixture
def speculator(drafter, tmp_path):
    folder, target = drafter("vanilla", KEPT)
    convert(folder, "speculators", tmp_path / "served", target)
    return tmp_path / "served", target


@pytest.mark.parametrize("key", ["sample_from_anchor", "sliding_window_non_causal"])
def test_what_is_not_stated_is_not_guessed(speculator, key):
    folder, target = speculator
    edit_config(folder, lambda raw: raw.pop(key))
    with pytest.raises(CheckpointError, match=rf"{key}: not stated"):
        load_drafter(folder, target)


def test_other_speculators_are_refused_by_name(speculator):
    folder, target = speculator
    edit_config(folder, lambda raw: raw.update(speculators_model_type="peagle"))
    with pytest.raises(CheckpointError, match=r"'peagle'.*dflash, dspark"):
        load_drafter(folder, target)


def test_the_number_of_target_layers_may_be_absent_but_taps_must_exist(speculator):
    folder, target = speculator
    edit_config(folder, lambda raw: raw.pop("num_target_layers"))
    assert load_drafter(folder, target).target_layer_ids == (0, 2)
    edit_config(folder, lambda raw: raw.update(aux_hidden_state_layer_ids=[1, 9]))
    with pytest.raises(CheckpointError, match=r"target_layer_ids = \[0, 8\]"):
        load_drafter(folder, target)


def test_offsets_that_contradict_the_marks_are_refused(speculator):
    folder, target = speculator
    edit_tensors(folder, lambda tensors: tensors.update(d2t=tensors["d2t"] + 1))
    with pytest.raises(CheckpointError, match="d2t and t2d name different target ids"):
        load_drafter(folder, target)
