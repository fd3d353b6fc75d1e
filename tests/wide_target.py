"""A random bfloat16 target of the embedded one's layer shape: rounding shows in it where a tiny one
hides it.
"""

from functools import cache

import pytest
import torch

from dartree_exp.engines.library import LibraryForward
from dartree_exp.engines.target import Target
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.rows import self_test

PROMPT = [4 + 7 * i % 59 for i in range(48)]
ROWS = 33


@cache
def wide_target(family: str, engine: str = "eager") -> Target:
    """Three layers, hidden 576, 9 query and 3 key-value heads of 64, products over 1,536 columns,
    vocabulary 64.
    """
    shape = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}
    return toy_target(
        family, torch.bfloat16, seed=1, layers=3, intermediate_size=1536, engine=engine, **shape
    )


@cache
def _passes(family: str, engine: str) -> bool:
    target = wide_target(family, engine)
    target.row_invariant = True
    return self_test(target, PROMPT, ROWS)


def row_invariant_target(family: str, engine: str = "eager") -> Target:
    """`wide_target`, row-invariant; the test is skipped where the machine's products are not."""
    if not _passes(family, engine):
        pytest.skip("on this machine the bits of a bfloat16 row depend on the number of rows")
    target = wide_target(family, engine)
    target.row_invariant = True
    return target


def one_row_rule_off(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    """Undo the two-row rule; the test is skipped where a product over one row has the bits of the
    others anyway.
    """
    layer = target._model.model.layers[0].mlp.down_proj
    x = torch.randn(1, 64, 1536, generator=torch.Generator().manual_seed(1)).bfloat16()
    if torch.equal(torch.cat([layer(x[:, i : i + 1]) for i in range(64)], dim=1), layer(x)):
        pytest.skip("on this machine a product over one row has the bits of the others")
    monkeypatch.setattr(LibraryForward, "hidden", LibraryForward._run)
    monkeypatch.setattr(LibraryForward, "logits", lambda self, hidden: self._head(hidden))
