"""Mask and positions of a tree against a loop over ancestors."""

import pytest
import torch
from tree_support import ALL, scorer

from dartree_exp.interfaces import Limits
from dartree_exp.kernels.tree_mask import tree_mask
from dartree_exp.trees.levelwise import PrunedBuilder
from dartree_exp.trees.masks import position_ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("past", [0, 7])
def test_mask_shows_context_ancestors_and_self(dtype, past):
    tree = PrunedBuilder(ALL, 4, -0.2).build(scorer("conditional", 0, 4, 6), Limits(4, 10))
    mask = tree_mask(tree.parents, past, dtype)
    assert mask.shape == (1, 1, 11, past + 11) and mask.dtype == dtype
    parents = tree.parents.tolist()
    for node in range(11):
        line, up = {node}, node
        while (up := parents[up]) >= 0:
            line.add(up)
        visible = [c for c in range(past + 11) if c < past or c - past in line]
        assert (mask[0, 0, node] == 0).nonzero().flatten().tolist() == visible
    assert set(mask.unique().tolist()) == {0.0, torch.finfo(dtype).min}


def test_positions_are_start_plus_depth():
    tree = PrunedBuilder(ALL, 2, 0.0).build(scorer("marginal", 0, 3, 6), Limits(3, 6))
    assert position_ids(tree, 41).tolist() == [[41, 42, 42, 43, 43, 44, 44]]
