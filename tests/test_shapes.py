"""Shapes in annotations are checked in the tests and cost nothing in a run."""

import importlib
import subprocess
import sys

import pytest
import torch
from jaxtyping import TypeCheckError

from dartree_exp.drafters.dflash.model import rotate
from shape_checks import CALLS, annotated_modules, check_all_again

MODULES = annotated_modules()
WRONG = """
import sys, torch
from dartree_exp.drafters.dflash.model import rotate
x = torch.zeros(2, 1, 3, 4)
assert rotate(x[0], x, x).shape == x.shape
assert "beartype" not in sys.modules
"""


@pytest.mark.parametrize("name", MODULES)
def test_every_annotated_module_is_checked(name):
    """By the import hook: a module imported before it, or in a way that it does not see, is not."""
    loader = importlib.import_module(name).__spec__.loader
    assert type(loader).__module__ == "jaxtyping._import_hook"


def test_control_a_wrong_shape_is_refused():
    x = torch.zeros(2, 1, 3, 4)
    assert rotate(x, x, x).shape == x.shape
    for wrong in (x[:, :, :2], x[..., :2], x[None], x.long()):  # rows, head_dim, rank, dtype
        with pytest.raises(TypeCheckError, match="rotate"):
            rotate(x, wrong, x)


def test_the_first_calls_are_checked_and_later_ones_cost_nothing():
    check_all_again()
    x = torch.zeros(2, 1, 3, 4)
    for _ in range(CALLS):
        rotate(x, x, x)
    rotate(x, x[..., :1], x)  # broadcasts: only its annotation forbids it
    check_all_again()
    with pytest.raises(TypeCheckError, match="rotate"):
        rotate(x, x[..., :1], x)


def test_shapes_are_not_checked_in_a_run():
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
