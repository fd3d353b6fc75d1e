"""Fixtures of the tracker tests."""

from collections.abc import Iterator

import pytest
import wandb


@pytest.fixture(autouse=True)
def fresh_wandb() -> Iterator[None]:
    """The library reads its environment once per process; without this, a test would use another
    test's server.
    """
    wandb.teardown()
    yield
    wandb.teardown()
