"""Which implementation of a kernel runs: Triton on CUDA tensors, torch everywhere else."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether triton is installed; looked up without importing it (0.2 s, and macOS has no
    wheel).
    """
    return find_spec("triton") is not None


def use_triton(tensor: Tensor) -> bool:
    """Whether the Triton kernel should run for this input."""
    return tensor.is_cuda and has_triton()
