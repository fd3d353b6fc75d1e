"""Toy targets with each engine."""

from functools import partial

import pytest

from dartree_exp.models.toy import toy_target


@pytest.fixture(params=["eager", "packed"])
def toy(request):
    """`toy_target` with each engine."""
    return partial(toy_target, engine=request.param)
