"""Rows whose bits do not depend on their company: attention, the two-row rule, and the self-test
that asserts it.
"""

import pytest
import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

from dartree_exp.engines.attention import row_invariant_attention
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.rows import path_tree, row_counts, row_difference, self_test
from wide_target import PROMPT, ROWS, one_row_rule_off, row_invariant_target


class Groups(torch.nn.Module):
    num_key_value_groups = 3
    training = False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_the_librarys_within_rounding(dtype):
    torch.manual_seed(0)
    query = torch.randn(1, 6, 11, 16, dtype=dtype)
    key, value = torch.randn(2, 1, 2, 29, 16, dtype=dtype).unbind()
    mask = torch.zeros(1, 1, 11, 29, dtype=dtype).masked_fill_(
        torch.rand(11, 29) < 0.3, torch.finfo(dtype).min
    )
    mask[..., 0] = 0
    mine, _ = row_invariant_attention(Groups(), query, key, value, mask, 0.25)
    exact, _ = eager_attention_forward(
        Groups(), query.double(), key.double(), value.double(), mask.double(), 0.25
    )
    assert mine.dtype == dtype and mine.shape == (1, 11, 6, 16)
    ulp = torch.finfo(dtype).eps
    assert (mine - exact).abs().max() <= ulp * exact.abs().max()


@pytest.mark.parametrize("engine", ["eager", "packed"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_step_and_a_tree_row_have_the_same_bits(family, engine):
    target = row_invariant_target(family, engine)
    for rows in (1, 2, 7, ROWS):
        assert row_difference(target, PROMPT, rows, steps=6) == 0


def test_a_row_has_the_same_bits_after_any_number_of_rows():
    """A key is at the end of a row in a step and in the middle in a tree. In float32, because
    bfloat16 hides most differences of the last bit.
    """
    shape = {"hidden_size": 64, "head_dim": 32, "num_key_value_heads": 1}
    target = toy_target("llama", torch.float32, engine="packed", **shape)
    target.row_invariant = True
    differences = [row_difference(target, PROMPT[:n], 6, steps=4) for n in range(12, 44)]
    assert differences == [0] * len(differences)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_control_the_librarys_attention_fails_the_self_test(family):
    target = row_invariant_target(family)
    target.row_invariant = False
    assert not self_test(target, PROMPT, ROWS)
    assert row_difference(target, PROMPT, ROWS) > 0


def test_control_a_product_over_one_row_fails_the_self_test(monkeypatch):
    target = row_invariant_target("llama")
    one_row_rule_off(monkeypatch, target)
    assert row_difference(target, PROMPT, ROWS) > 0


def test_a_single_row_leaves_the_cache_as_the_library_would():
    target = toy_target("llama", torch.bfloat16, seed=1)
    lengths = []
    for on in (False, True):
        target.row_invariant = on
        cache = target.new_cache(len(PROMPT) + 2)
        target.prefill(PROMPT, cache)
        target.step(5, cache)
        target.step(6, cache)  # the last place: its twin needs one more
        lengths.append(cache.length)
    assert lengths == [len(PROMPT) + 2] * 2


def test_row_counts_cover_both_ends():
    assert row_counts(1) == [2]
    assert row_counts(4) == [2, 3, 4]
    assert row_counts(65)[-1] == 65
    assert {2, 9, 16, 17, 32, 33, 64} <= set(row_counts(100))


@pytest.mark.parametrize("rows", [1, 5, 6, 33])
def test_the_measured_tree_holds_the_path(rows):
    path = [9, 9, 4, 63, 0]
    tree, places = path_tree(path, rows, 64, torch.device("cpu"))
    tree.validate()
    assert len(tree.tokens) == max(rows, len(path))
    assert tree.tokens[places].tolist() == path
    assert tree.parents[places].tolist() == [-1, *places[:-1]]
