"""What the tests of trackers share."""

from collections.abc import Iterator

import pytest
import wandb


@pytest.fixture(autouse=True)
def fresh_wandb() -> Iterator[None]:
    """The library reads its environment once per process: without this a test would meet the server
    of another.
    """
    wandb.teardown()
    yield
    wandb.teardown()
