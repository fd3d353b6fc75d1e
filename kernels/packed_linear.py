"""Products with fixed weights on a CPU: the weights are laid out once for oneDNN.

`F.linear` lays out its weights again in every call, which takes longer than a product of few rows:
the packed product of 1 to 65 rows takes a third to three quarters of the time (two cores with
AVX512-BF16).
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_ROWS = 16  # what the layout is chosen for; any number of rows may be multiplied

Linear = Callable[[Float[Tensor, "*rows inner"]], Float[Tensor, "*rows outer"]]
Linears = Callable[[Float[Tensor, "*rows inner"]], tuple[Float[Tensor, "*rows _"], ...]]


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN has a packed product for a weight of this dtype and device."""
    if weight.device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def packed_linear(
    weight: Float[Tensor, "outer inner"], bias: Float[Tensor, " outer"] | None = None
) -> Linear:
    """x -> x @ weight.T + bias, for inference; `F.linear` where nothing can be packed.

    A packed weight is a copy: a later change of `weight` is not seen. Results are those of
    `F.linear` within rounding. For at least two rows, a row's bits do not depend on the number of
    rows.
    """
    weight = weight.detach()
    if not can_pack(weight):
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)

    def product(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")
        return y

    return product


def packed_linears(*weights: Float[Tensor, "_ inner"]) -> Linears:
    """The products of x with several weights: one product where they can be packed, which reads x
    once; elsewhere one each, so that no weight is copied.
    """
    if not can_pack(weights[0]):
        singles = [packed_linear(weight) for weight in weights]
        return lambda x: tuple(single(x) for single in singles)
    sizes = [len(weight) for weight in weights]
    joint = packed_linear(torch.cat([weight.detach() for weight in weights]))
    return lambda x: joint(x).split(sizes, dim=-1)
