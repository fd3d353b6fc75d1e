"""The cache adapter: kept rows equal those of a new prefill."""

import pytest
import torch

from dartree_exp.engines.cache import CacheOverflowError

PROMPT = [5, 9, 30, 41, 12]
# A root with two children; the second child has a child: the accepted path [0, 2, 3] is not
# contiguous.
TOKENS = [11, 6, 23, 17]
PARENTS = [-1, 0, 0, 2]
DEPTHS = [0, 1, 1, 2]
PATHS = [[0], [0, 1], [0, 2], [0, 2, 3]]


def after_verify(target, capacity=32):
    cache = target.new_cache(capacity)
    target.prefill(PROMPT, cache)
    mask = target.mask(torch.tensor(PARENTS), len(PROMPT))
    target.verify(torch.tensor(TOKENS), torch.tensor([DEPTHS]) + len(PROMPT), mask, cache)
    return cache


def rows_of(path):
    return torch.tensor([len(PROMPT) + i for i in path])


def stored(cache):
    return torch.cat([rows.flatten() for rows in cache.rows()])


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("path", [*PATHS, []])
def test_kept_rows_equal_a_fresh_prefill(toy, family, path):
    target = toy(family, torch.float64)
    cache = after_verify(target)
    cache.keep(len(PROMPT), rows_of(path))
    fresh = target.new_cache(32)
    committed = PROMPT + [TOKENS[i] for i in path]
    target.prefill(committed, fresh)
    assert cache.length == fresh.length == len(committed)
    assert torch.allclose(stored(cache), stored(fresh), rtol=0, atol=1e-10)
    assert torch.allclose(target.step(44, cache), target.step(44, fresh), rtol=0, atol=1e-10)


def test_control_a_naive_prefix_is_caught(toy):
    target = toy(dtype=torch.float64)
    cache = after_verify(target)
    cache.keep(len(PROMPT) + 3)  # rows 0, 1, 2 instead of 0, 2, 3: a rejected sibling stays
    fresh = target.new_cache(32)
    target.prefill(PROMPT + [TOKENS[i] for i in (0, 2, 3)], fresh)
    assert (stored(cache) - stored(fresh)).abs().max() > 1e-2
    assert (target.step(44, cache) - target.step(44, fresh)).abs().max() > 1e-3


def test_overlapping_source_and_destination(toy):
    target = toy(dtype=torch.float64)
    cache = target.new_cache(16)
    target.prefill(list(range(4, 16)), cache)
    before = [rows.clone() for rows in cache.rows()]
    rows = [
        3,
        4,
        5,
        7,
        8,
        11,
    ]  # moved down by one, so every destination but the first is also a source
    cache.keep(2, rows)
    for kept, all_rows in zip(cache.rows(), before, strict=True):
        assert torch.equal(kept, all_rows[..., [0, 1, *rows], :])


def test_keep_without_rows_is_a_crop_and_copies_nothing(toy):
    target = toy(dtype=torch.float64)
    cache = after_verify(target)
    before = cache.rows()
    expected = [rows.clone() for rows in before]
    cache.keep(3)
    assert cache.length == 3
    assert all(map(torch.equal, before, expected))


@pytest.mark.parametrize(
    ("prefix", "rows"),
    [(99, None), (-1, None), (5, [4]), (5, [6, 6]), (5, [7, 6]), (5, [9]), (5, [-1])],
)
def test_bad_prefix_or_rows_are_refused_and_change_nothing(toy, prefix, rows):
    target = toy(dtype=torch.float64)
    cache = after_verify(target)
    before = stored(cache).clone()
    with pytest.raises(ValueError, match=r"prefix_length|must ascend"):
        cache.keep(prefix, None if rows is None else torch.tensor(rows))
    assert torch.equal(stored(cache), before)


def test_overflow_names_both_sizes(toy):
    target = toy()
    cache = target.new_cache(6)
    target.prefill(PROMPT, cache)
    target.step(4, cache)
    with pytest.raises(CacheOverflowError, match="has 6 rows, 7 are needed"):
        target.step(4, cache)


def test_capacity_must_be_positive(toy):
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        toy().new_cache(0)


def test_a_reused_cache_equals_a_fresh_one(toy):
    target = toy("qwen3", torch.float64)
    cache = after_verify(target)
    cache.reset()
    assert cache.length == 0
    again = target.prefill(PROMPT[::-1], cache, (1,))
    fresh = target.prefill(PROMPT[::-1], target.new_cache(32), (1,))
    assert torch.equal(again.logits, fresh.logits)
    assert torch.equal(again.features, fresh.features)


def test_an_empty_commit_then_overwrite_never_sees_old_rows(toy):
    target = toy(dtype=torch.float64)
    cache = after_verify(target)
    cache.keep(len(PROMPT))
    fresh = target.new_cache(32)
    target.prefill(PROMPT, fresh)
    for token in (8, 19, 33):
        assert torch.equal(target.step(token, cache), target.step(token, fresh))
