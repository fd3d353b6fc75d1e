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
from jaxtyping import install_import_hook

import golden_support
from shape_checks import annotated_modules, check_all_again

# From here on annotated shapes are checked at every call. Nothing of the package is imported yet.
install_import_hook(annotated_modules(), "shape_checks.check_shapes")


LONGEST = ("test_notebooks.py", "test_sweep_processes.py", "test_tau.py", "test_style.py")
"""These files take a minute or more each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two processes end at about the same time."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="module", autouse=True)
def _every_file_checks_shapes() -> None:
    check_all_again()


def pytest_configure() -> None:
    if golden_support.required() and (problem := golden_support.missing()):
        raise pytest.UsageError(problem)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Benchmark prompts and generated text that the repository may not carry."""
    folder = golden_support.SHARED / "data"
    if not folder.is_dir():
        missing = pytest.fail if os.environ.get("DARTREE_REQUIRE_SHARED") else pytest.skip
        missing(f"{folder} does not exist: set DARTREE_SHARED")
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
