"""The training forward gives the backbone's numbers, block by block, and no block sees another one
or its own future.
"""

import pytest
import torch

from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.training.forward import BlockInputs, block_hidden

BLOCK = 5


def make(layers: int, causal: bool = False) -> tuple[DFlashBackbone, BlockInputs]:
    config = DFlashConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8, vocab_size=100, block_size=BLOCK,
        mask_token_id=3, target_layer_ids=(1, 2), num_target_layers=6, shift_label=True,
        causal=causal,
    )  # fmt: skip
    torch.manual_seed(layers)
    backbone = DFlashBackbone(config).double()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    rows = torch.zeros(2, 11, dtype=torch.long)
    rows[0], rows[1, :8] = torch.arange(11), torch.arange(11, 19)
    inputs = BlockInputs(
        features=torch.randn(19, 96, dtype=torch.float64),
        rows=rows,
        anchors=torch.tensor([[3, 10, 6], [1, 2, 7]]),
        anchor_embeds=torch.randn(2, 3, 48, dtype=torch.float64),
        mask_embed=torch.randn(48, dtype=torch.float64),
    )
    return backbone, inputs


def one_block(
    backbone: DFlashBackbone, inputs: BlockInputs, sample: int, anchor: int
) -> torch.Tensor:
    """What inference computes: the block alone, with its context through the draft cache, root last
    committed.
    """
    start = int(inputs.anchors[sample, anchor])
    block = torch.cat(
        [inputs.anchor_embeds[sample, anchor][None], inputs.mask_embed.expand(BLOCK - 1, -1)]
    )[None]
    context = inputs.features[inputs.rows[sample, :start]][None]
    places = torch.arange(start)[None], torch.arange(start, start + BLOCK)[None]
    return backbone(context, block, *places, cache=backbone.new_cache())[0]


def worst(
    backbone: DFlashBackbone, inputs: BlockInputs, hidden: torch.Tensor, slots: list[int]
) -> float:
    return max(
        float((one_block(backbone, inputs, s, a)[slots] - hidden[s, a]).abs().max())
        for s in range(2)
        for a in range(3)
    )


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_inference_path(causal):
    for layers in (1, 2, 3):
        backbone, inputs = make(layers, causal)
        assert (
            worst(backbone, inputs, block_hidden(backbone, inputs, BLOCK), list(range(BLOCK)))
            < 1e-10
        )
        picked = torch.tensor([0, 2, 4]).expand(2, 3, 3)
        assert (
            worst(backbone, inputs, block_hidden(backbone, inputs, BLOCK, picked), [0, 2, 4])
            < 1e-10
        )


@torch.no_grad()
def test_a_leak_would_be_caught():
    """Control: with the anchor's own features visible (an off-by-one in the mask) the comparison
    must fail.
    """
    backbone, inputs = make(2)
    leaking = BlockInputs(
        inputs.features, inputs.rows, inputs.anchors + 1, inputs.anchor_embeds, inputs.mask_embed
    )
    assert (
        worst(backbone, inputs, block_hidden(backbone, leaking, BLOCK), list(range(BLOCK))) > 1e-3
    )


@torch.no_grad()
def test_features_from_the_anchor_on_change_nothing():
    backbone, inputs = make(2)
    before = block_hidden(backbone, inputs, BLOCK)
    inputs.features[3:] += 100.0
    after = block_hidden(backbone, inputs, BLOCK)
    assert torch.equal(before[0, 0], after[0, 0])
    assert not torch.allclose(before[0, 1], after[0, 1])


@torch.no_grad()
def test_a_causal_slot_does_not_depend_on_the_length_of_the_block():
    """Later slots are not seen; in a bidirectional block they are."""
    for causal in (True, False):
        backbone, inputs = make(2, causal)
        short, whole = (block_hidden(backbone, inputs, size) for size in (2, BLOCK))
        assert torch.allclose(short, whole[:, :, :2], atol=1e-9) == causal


@torch.no_grad()
def test_blocks_do_not_see_each_other():
    backbone, inputs = make(2)
    before = block_hidden(backbone, inputs, BLOCK)
    inputs.anchor_embeds[0, 1] += 1.0
    after = block_hidden(backbone, inputs, BLOCK)
    changed = (before - after).abs().amax(dim=(2, 3)) > 1e-9
    assert changed.tolist() == [[False, True, False], [False, False, False]]
