"""The draft backbone against the reference implementation's vectors (golden family
`dflash_backbone`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drafter_support import stub_target
from torch import Tensor

from dartree_exp.drafters.dflash import model as backbone_module
from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.drafters.dflash.checkpoint import load_drafter, read_checkpoint
from dartree_exp.drafters.dflash.model import DFlashBackbone, DFlashLayer
from dartree_exp.drafters.dflash.packed import PackedBackbone
from golden_support import GoldenCase, carried, golden_cases

FAMILY = "dflash_backbone"


def in_float32(case: GoldenCase) -> bool:
    return case.spec["params"]["dtype"] == "float32"


def run_rounds(
    model: DFlashBackbone, case: GoldenCase, expected: str = "hidden", packed: bool = False
) -> tuple[list[float], DraftCache]:
    """Largest excess over the tolerance per round (<= 0 passes), and the cache after the last
    round. packed: of the model's `PackedBackbone`.
    """
    tolerance, dtype = case.spec["tolerance"], model.fc.weight.dtype
    atol = tolerance["hidden_atol"] if expected == "hidden" else 5e-5
    rtol = tolerance["hidden_rtol"] if expected == "hidden" else 1e-4
    cache, excess = model.new_cache(), []
    fast = PackedBackbone(model) if packed else None
    for r, line in enumerate(case.spec["rounds"]):
        assert cache.length == line["draft_cache_len_before"]
        features = case.arrays[f"round{r}.target_hidden"].to(dtype)
        positions, split = case.arrays[f"round{r}.position_ids"], features.shape[1]
        embeds = case.arrays[f"round{r}.block_embeds"].to(dtype)
        with torch.no_grad():
            if fast is not None:
                hidden = fast(features[0], embeds[0], cache)[None]
            else:
                hidden = model(
                    features, embeds, positions[:, :split], positions[:, split:], cache=cache
                )
        assert cache.length == line["draft_cache_len_after"] == line["start"]
        want = case.arrays[f"round{r}.{expected}"].double()
        excess.append(((hidden.double() - want).abs() - atol - rtol * want.abs()).max().item())
    return excess, cache


def read(case: GoldenCase, dtype: torch.dtype | None = None) -> DFlashBackbone:
    stored = read_checkpoint(case.checkpoint, dtype=dtype)
    assert list(stored.config.target_layer_ids) == case.spec["params"]["target_layer_ids"]
    assert stored.config.shift_label is False and stored.head is None
    return stored.backbone


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", golden_cases(FAMILY))
def test_rounds_and_final_cache(case: GoldenCase, packed: bool):
    excess, cache = run_rounds(read(case), case, packed=packed)
    assert max(excess) <= 0
    atol, rtol = case.spec["tolerance"]["hidden_atol"], case.spec["tolerance"]["hidden_rtol"]
    for layer in range(case.spec["params"]["layers"]):
        for kind, rows in zip(("keys", "values"), cache.rows(layer), strict=True):
            torch.testing.assert_close(
                rows, case.arrays[f"final_cache.layer{layer}.{kind}"], atol=atol, rtol=rtol
            )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", golden_cases(FAMILY, lambda case: not in_float32(case)))
def test_bf16_weights_in_float32(case: GoldenCase, packed: bool):
    excess, _ = run_rounds(read(case, torch.float32), case, "hidden_fp32", packed)
    assert max(excess) <= 0


@pytest.mark.parametrize("case", golden_cases(FAMILY, in_float32))
def test_proposals_use_the_slots_after_the_root(case: GoldenCase):
    drafter = load_drafter(case.checkpoint, stub_target(case, case.spec["params"]["L"]))
    assert drafter.num_drafts == drafter.block_size - 1
    session = drafter.session([])
    for r, line in enumerate(case.spec["rounds"]):
        root = int(case.arrays[f"round{r}.block_ids"][0, 0])
        block = session.propose(case.arrays[f"round{r}.target_hidden"][0], root, line["start"])
        torch.testing.assert_close(
            block.hidden, case.arrays[f"round{r}.hidden"][0, 1:], atol=5e-5, rtol=1e-4
        )
        torch.testing.assert_close(
            block.logits, case.arrays[f"round{r}.logits"][0, 1:], atol=5e-4, rtol=1e-4
        )
        assert block.vocab_ids is None and block.logits.dtype == torch.float32


class _NormBlockOnly(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module, slots: int) -> None:
        super().__init__()
        self.norm, self.slots = norm, slots

    def forward(self, keys: Tensor) -> Tensor:
        return torch.cat([keys[:, :, : -self.slots], self.norm(keys[:, :, -self.slots :])], dim=2)


def _context_keys_not_normed(model: DFlashBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in model.layers:
        layer.self_attn.k_norm = _NormBlockOnly(layer.self_attn.k_norm, model.config.block_size)


def _normed_context(model: DFlashBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = DFlashLayer.forward

    def broken(self: DFlashLayer, x: Tensor, context: Tensor, *rest: Any) -> Tensor:
        return forward(self, x, self.input_layernorm(context), *rest)

    monkeypatch.setattr(DFlashLayer, "forward", broken)


def _causal_block(model: DFlashBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention

    def broken(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        slots, past = q.shape[2], k.shape[2] - q.shape[2]
        visible = torch.ones(slots, k.shape[2], dtype=torch.bool).tril(past)
        return attend(q, k, v, **(options | {"attn_mask": visible}))

    monkeypatch.setattr(backbone_module.F, "scaled_dot_product_attention", broken)


def _block_positions_one_late(model: DFlashBackbone, monkeypatch: pytest.MonkeyPatch) -> None:
    table, slots = backbone_module.rotary_table, model.config.block_size

    def broken(positions: Tensor, *rest: Any) -> Any:
        context, block = positions[:, :-slots], positions[:, -slots:]
        return table(torch.cat([context, block + 1], dim=1), *rest)

    monkeypatch.setattr(backbone_module, "rotary_table", broken)


@pytest.mark.parametrize(
    "break_it",
    [_normed_context, _context_keys_not_normed, _causal_block, _block_positions_one_late],
)
@pytest.mark.parametrize("case", carried(FAMILY, in_float32), ids=lambda case: case.name)
def test_control_a_broken_backbone_is_caught(
    case: GoldenCase, monkeypatch: pytest.MonkeyPatch, break_it: Callable
):
    model = read(case)
    break_it(model, monkeypatch)
    excess, _ = run_rounds(model, case)
    assert min(excess) > 0


@pytest.mark.parametrize("case", carried(FAMILY, in_float32), ids=lambda case: case.name)
def test_control_block_rows_left_in_the_cache_are_caught(case: GoldenCase):
    model = read(case)
    cache = model.new_cache()
    for r in range(2):
        features = case.arrays[f"round{r}.target_hidden"]
        positions, split = case.arrays[f"round{r}.position_ids"], features.shape[1]
        with torch.no_grad():
            hidden = model(
                features,
                case.arrays[f"round{r}.block_embeds"],
                positions[:, :split],
                positions[:, split:],
                cache=cache,
            )
        cache.length += case.spec["params"]["block"]  # not cropped
        agrees = torch.allclose(hidden, case.arrays[f"round{r}.hidden"], atol=5e-5, rtol=1e-4)
        assert agrees == (r == 0)
