"""Packed products against products in float64."""

import pytest
import torch
import torch.nn.functional as F

from dartree_exp.kernels.packed_linear import can_pack, packed_linear

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float64: 1e-13}


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(1, 8), (17, 8), (3, 5, 8)])
def test_packed_products_are_the_plain_ones(dtype, shape):
    weight, x = random(12, 8, dtype=dtype), random(*shape, dtype=dtype)
    with torch.inference_mode():
        y = packed_linear(weight)(x)
    assert y.dtype == dtype
    exact = F.linear(x.double(), weight.double())
    torch.testing.assert_close(y.double(), exact, atol=ROUNDING[dtype] * 8, rtol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_for_any_number_of_rows(dtype):
    weight, x = random(96, 576, dtype=dtype), random(80, 576, dtype=dtype)
    product = packed_linear(weight)
    whole = product(x)
    for rows in (2, 3, 16, 17, 65):
        assert torch.equal(product(x[:rows]), whole[:rows])


def test_what_cannot_be_packed():
    assert not can_pack(torch.zeros(2, 2, dtype=torch.float64))
    assert not can_pack(torch.zeros(2, 2, device="meta"))
