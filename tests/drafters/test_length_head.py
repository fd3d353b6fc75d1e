"""AdaFlash's length head: released names and sizes, its equation, checkpoints without it."""

import json

import pytest
import torch
from drafter_support import edit_config, edit_tensors
from safetensors.torch import load_file

from dartree_exp.drafters.dflash.checkpoint import load_drafter, save_drafter
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.training.convert import convert

WIDTH, SLOTS, HIDDEN = 10, 6, 32
FILL_IN = {"shift_label": False, "head": None}
NAMES = {
    "thresh_head_two_model.down.weight": [WIDTH, 2 * HIDDEN],
    "thresh_head_two_model.down.bias": [WIDTH],
    "thresh_head_two_model.res.0.weight": [WIDTH, WIDTH],
    "thresh_head_two_model.res.0.bias": [WIDTH],
    "thresh_head_two_model.out.weight": [1, WIDTH],
    "thresh_head_two_model.out.bias": [1],
}


@pytest.fixture
def released(make_parts, tmp_path):
    """z-lab's layout with the names, sizes and keys of AdaFlash's release, from random weights."""
    backbone, _, target = make_parts(**FILL_IN)
    save_drafter(tmp_path / "drafter", backbone)

    def add(tensors):
        torch.manual_seed(2)
        tensors.update({name: torch.randn(shape) for name, shape in NAMES.items()})

    def say(raw):
        del raw["sample_from_anchor"], raw["dflash_config"]["shift_label"]
        raw["dflash_config"] |= {
            "use_thresh_head_two_model": True,
            "thresh_head_bottleneck_dim": WIDTH,
            "thresh_head_direct_len": True,
        }

    edit_tensors(tmp_path / "drafter", add)
    edit_config(tmp_path / "drafter", say)
    return tmp_path / "drafter", target


def test_the_released_layout_loads_and_computes_its_equation(released):
    folder, target = released
    drafter = load_drafter(folder, target)
    assert drafter.num_drafts == SLOTS - 1  # z-lab's layout: the root has a slot
    weights = {
        name.removeprefix("thresh_head_two_model."): value.double()
        for name, value in load_file(folder / "model.safetensors").items()
        if name in NAMES
    }
    hidden = torch.randn(2, SLOTS - 1, HIDDEN)
    x = torch.cat([hidden.mean(1), hidden[:, -1]], 1).double()
    silu = torch.nn.functional.silu
    z = silu(x @ weights["down.weight"].T + weights["down.bias"])
    z = z + silu(z @ weights["res.0.weight"].T + weights["res.0.bias"])
    share = torch.sigmoid(z @ weights["out.weight"].T + weights["out.bias"])[:, 0]
    torch.testing.assert_close(drafter.length.tokens(hidden).double(), SLOTS * share)


def test_a_cut_block_does_not_change_what_the_head_means(released):
    folder, target = released
    assert load_drafter(folder, target, block_size=3).length.block_size == SLOTS


def test_a_written_checkpoint_has_the_released_names(released, tmp_path):
    folder, target = released
    convert(folder, "zlab", tmp_path / "again", target)
    stored = {
        name: list(value.shape)
        for name, value in load_file(tmp_path / "again" / "model.safetensors").items()
    }
    assert {name: stored[name] for name in stored if name.startswith("thresh")} == NAMES
    own = json.loads((tmp_path / "again" / "config.json").read_text())["dflash_config"]
    assert own["use_thresh_head_two_model"] and own["thresh_head_direct_len"]
    hidden = torch.randn(4, HIDDEN)
    one, two = (load_drafter(f, target).length for f in (folder, tmp_path / "again"))
    assert torch.equal(one.tokens(hidden), two.tokens(hidden))
    with pytest.raises(CheckpointError, match="speculators format has no length head"):
        convert(folder, "speculators", tmp_path / "served", target)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("thresh_head_direct_len", False, "thresh_head_direct_len = False: only true"),
        ("thresh_head_direct_len", None, "thresh_head_direct_len = None: only true"),
        ("thresh_head_bottleneck_dim", None, "thresh_head_bottleneck_dim: missing"),
        ("thresh_head_bottleneck_dim", 12, r"thresh_head_two_model.down.weight is \[10, 64\]"),
        ("use_thresh_head_two_model", "yes", "use_thresh_head_two_model = 'yes': must be true"),
        ("use_thresh_head_two_model", False, "unexpected tensors thresh_head_two_model.down.bias"),
    ],
)
def test_heads_that_would_mean_something_else_are_refused(released, key, value, said):
    folder, target = released
    edit_config(folder, lambda raw: raw["dflash_config"].update({key: value}))
    with pytest.raises(CheckpointError, match=said):
        load_drafter(folder, target)


def test_the_share_is_of_the_whole_block():
    head = LengthHead(4, 3, block_size=8)
    torch.nn.init.zeros_(head.out.weight)
    torch.nn.init.zeros_(head.out.bias)
    assert head.tokens(torch.randn(5, 4)).item() == 4.0  # sigmoid(0) of 8 slots
