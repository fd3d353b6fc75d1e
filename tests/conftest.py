"""Shared fixtures. The first lines run before anything imports triton or a hub client."""

import os

os.environ.setdefault(
    "TRITON_INTERPRET", "1"
)  # read once, at the first `import triton`, which transformers' models do
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_MODE", "offline")

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden vectors and data: `DARTREE_SHARED`, or `shared/` beside the project."""
    folder = Path(os.environ.get("DARTREE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "golden").is_dir():
        pytest.skip(f"no golden vectors at {folder}: set DARTREE_SHARED")
    return folder


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The embedded target's folder, fetched once; skips where it can be neither found nor
    fetched.
    """
    from dartree_exp.models.fetch import FetchError, ensure

    try:
        return ensure("smollm2_135m")
    except FetchError as error:
        pytest.skip(str(error))
