"""Runs to compare."""

import pytest

from sample_records import mini_run, write_run


@pytest.fixture
def sweep(tmp_path):
    """Three runs on the same prompts; written so that the order of folders is not the order of the
    table.
    """
    write_run(tmp_path / "a", mini_run(2), budget=128)
    write_run(tmp_path / "b", mini_run(1), budget=16)
    write_run(tmp_path / "c", mini_run(0), method="dflash", tree__name="chain")
    return tmp_path
