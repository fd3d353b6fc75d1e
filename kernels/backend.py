"""Chooses the implementation of a kernel: Triton for CUDA tensors, else torch."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether triton is installed, without importing it (0.2 s; macOS has no wheel)."""
    return find_spec("triton") is not None


def use_triton(tensor: Tensor) -> bool:
    """Whether to run the Triton kernel for this input."""
    return tensor.is_cuda and has_triton()
