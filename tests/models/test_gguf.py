"""Undoing the converter's permutation of query and key rows."""

import numpy as np
import pytest

from dartree_exp.models.gguf import hf_name, undo_rope_permutation


def convert_rows(rows: np.ndarray, heads: int) -> np.ndarray:
    """The permutation of llama.cpp's converter: within a head, rows 0..half-1 and half..2*half-1
    interleaved.
    """
    size = rows.shape[0] // heads
    out = np.empty_like(rows)
    for head in range(heads):
        for pair in range(size // 2):
            out[head * size + 2 * pair] = rows[head * size + pair]
            out[head * size + 2 * pair + 1] = rows[head * size + pair + size // 2]
    return out


def test_permutation_is_undone():
    rows = np.arange(24 * 5, dtype=np.float32).reshape(24, 5)
    stored = convert_rows(rows, heads=3)
    assert not np.array_equal(stored, rows)
    assert np.array_equal(undo_rope_permutation(stored, heads=3), rows)


def test_names():
    assert hf_name("blk.11.attn_output.weight") == "model.layers.11.self_attn.o_proj.weight"
    assert hf_name("output_norm.weight") == "model.norm.weight"
    with pytest.raises(KeyError):
        hf_name("blk.0.ffn_gate_exps.weight")
