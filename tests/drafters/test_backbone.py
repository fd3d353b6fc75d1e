"""The backbone's training form, cache and dtypes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dartree_exp.drafters.dflash.model import rotary_table
from dartree_exp.drafters.dflash.packed import PackedBackbone


def test_masked_anchors_equal_cached_rounds(make_parts: Callable):
    """Many anchors in one masked pass give the same as drafting at each anchor."""
    backbone, _, _ = make_parts(torch.float64)
    b, length, anchors = 6, 20, [3, 9, 10, 17]
    features = torch.randn(2, length, 2 * 32, dtype=torch.float64)
    blocks = torch.randn(2, len(anchors) * b, 32, dtype=torch.float64)
    positions = torch.tensor([a + k for a in anchors for k in range(b)])[None]
    mask = torch.zeros(2, 1, len(anchors) * b, length + len(anchors) * b, dtype=torch.float64)
    mask += torch.finfo(mask.dtype).min
    for j, anchor in enumerate(anchors):
        rows = slice(j * b, (j + 1) * b)
        mask[:, :, rows, :anchor] = 0
        mask[:, :, rows, length + j * b : length + (j + 1) * b] = 0
    context_positions = torch.arange(length)[None]
    together = backbone(features, blocks, context_positions, positions, mask=mask)

    cache, done = backbone.new_cache(batch=2), 0
    for j, anchor in enumerate(anchors):
        rows = slice(j * b, (j + 1) * b)
        alone = backbone(
            features[:, done:anchor],
            blocks[:, rows],
            context_positions[:, done:anchor],
            positions[:, rows],
            cache=cache,
        )
        torch.testing.assert_close(alone, together[:, rows], atol=1e-10, rtol=1e-10)
        done = anchor


def test_masked_pass_reaches_every_weight(make_parts: Callable):
    backbone, _, _ = make_parts()
    mask = torch.zeros(1, 1, 12, 17)
    out = backbone(
        torch.randn(1, 5, 64),
        torch.randn(1, 12, 32),
        torch.arange(5)[None],
        torch.arange(5, 17)[None],
        mask=mask,
    )
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())


def test_mask_and_cache_exclude_each_other(make_parts: Callable):
    backbone, _, _ = make_parts()
    with pytest.raises(ValueError, match="mask and cache"):
        backbone(
            torch.zeros(1, 1, 64),
            torch.zeros(1, 6, 32),
            torch.zeros(1, 1, dtype=torch.int64),
            torch.zeros(1, 6, dtype=torch.int64),
            mask=torch.zeros(1, 1, 6, 7),
            cache=backbone.new_cache(),
        )


def test_cache_keeps_its_rows_while_it_grows(make_parts: Callable):
    backbone, _, _ = make_parts(torch.float64)
    torch.manual_seed(1)
    features, block = (
        torch.randn(1, 300, 64, dtype=torch.float64),
        torch.randn(1, 6, 32, dtype=torch.float64),
    )
    positions = torch.arange(400)[None]

    def run(cuts: list[int]) -> torch.Tensor:
        cache, done, out = backbone.new_cache(), 0, None
        for cut in cuts:
            out = backbone(
                features[:, done:cut],
                block,
                positions[:, done:cut],
                positions[:, cut : cut + 6],
                cache=cache,
            )
            done = cut
        assert cache.length == 300
        return out

    torch.testing.assert_close(run([1, 7, 64, 65, 150, 300]), run([300]), atol=1e-12, rtol=1e-12)


def test_rotary_angles_are_not_rounded_with_the_module(make_parts: Callable):
    """In bfloat16 the position 1001 does not exist; the angles must still be those of 1001."""
    backbone, _, _ = make_parts()
    backbone.to(torch.bfloat16).to(torch.float32)
    positions = torch.tensor([[1001]])
    cos, sin = rotary_table(positions, backbone.config, torch.bfloat16)
    exact = 1001 * 1_000_000.0 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    torch.testing.assert_close(cos[0, 0, 0, :4].double(), exact.cos(), atol=4e-3, rtol=0)
    torch.testing.assert_close(sin[0, 0, 0, 4:].double(), exact.sin(), atol=4e-3, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_packed_backbone_drafts_the_same(
    make_parts: Callable, dtype: torch.dtype, causal: bool
):
    """Rounds past the first positions of its rotary table, with one and with many new rows."""
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 2}
    backbone, _, _ = make_parts(dtype, **sizes, causal=causal)
    packed = PackedBackbone(backbone)
    caches, done = (backbone.new_cache(), backbone.new_cache()), 0
    for count in (7, 1, 60, 2):
        features, block = torch.randn(1, count, 64, dtype=dtype), torch.randn(1, 6, 32, dtype=dtype)
        positions = torch.arange(done, done + count + 6)[None]
        expected = backbone(
            features, block, positions[:, :count], positions[:, count:], cache=caches[0]
        )
        with torch.inference_mode():
            got = packed(features[0], block[0], caches[1])
        torch.testing.assert_close(got[None], expected, atol=1e-4, rtol=1e-4)
        for layer in range(2):
            torch.testing.assert_close(caches[1].rows(layer), caches[0].rows(layer))
        done += count
