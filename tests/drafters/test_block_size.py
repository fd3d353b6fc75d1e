"""Blocks of another size than trained: fewer or more mask slots on the same weights."""

import pytest
import torch

from dartree_exp.drafters.dflash.checkpoint import load_drafter


@pytest.mark.parametrize("shift_label", [True, False])
@pytest.mark.parametrize("size", [2, 4, 6, 9])
def test_slots_follow_the_setting(saved, size, shift_label):
    folder, target = saved(shift_label=shift_label, pure_draft_prefix_len=0)
    drafter = load_drafter(folder, target, block_size=size)
    assert drafter.block_size == size and drafter.num_drafts == size - (not shift_label)
    block = drafter.session([]).propose(torch.zeros(5, 64), 3, 5)
    assert block.logits.shape == (drafter.num_drafts, 40)


def test_the_trained_size_is_the_default_and_changes_nothing(saved):
    folder, target = saved()
    blocks = [
        load_drafter(folder, target, block_size=size).session([]).propose(torch.ones(5, 64), 3, 5)
        for size in (None, 6)
    ]
    assert torch.equal(blocks[0].logits, blocks[1].logits)


def test_other_slots_change_what_a_bidirectional_block_says(saved):
    for causal in (False, True):
        folder, target = saved(head=None, causal=causal)
        short, whole = (
            load_drafter(folder, target, block_size=size)
            .session([])
            .propose(torch.ones(5, 64), 3, 5)
            for size in (3, 6)
        )
        assert torch.allclose(short.logits, whole.logits[:3], atol=1e-5) == causal
