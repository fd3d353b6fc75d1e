"""The tree mask: torch reference against a walk over parents, Triton (interpreter) against the
reference.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dartree_exp.kernels import tree_mask as masks
from dartree_exp.kernels.backend import use_triton


@st.composite
def trees(draw):
    size = draw(st.integers(1, 12))
    return torch.tensor([-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))])


@settings(max_examples=60, deadline=None)
@given(trees())
def test_visibility_is_the_walk_to_the_root(parents):
    seen = masks.visibility(parents)
    for node in range(len(parents)):
        line, up = set(), node
        while up >= 0:
            line.add(up)
            up = parents[up].item()
        assert set(seen[node].nonzero().flatten().tolist()) == line


@settings(max_examples=8, deadline=None)
@given(
    trees(),
    st.integers(0, 9),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]),
)
def test_triton_equals_the_reference(parents, past, dtype):
    triton_mask = pytest.importorskip("dartree_exp.kernels.tree_mask_triton").tree_mask_triton
    assert torch.equal(
        triton_mask(parents, past, dtype, tile=8), masks.tree_mask(parents, past, dtype)
    )


def test_long_chain_needs_every_doubling():
    parents = torch.arange(-1, 256)
    assert torch.equal(masks.visibility(parents), torch.ones(257, 257).tril().bool())


def test_cpu_tensors_take_the_torch_path():
    assert not use_triton(torch.zeros(1))
