"""The wheel carries everything: it runs in an empty folder, without the checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "conf", "kernels", "src")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build from, since a build leaves files behind that the next one would pack."""
    folder = tmp_path_factory.mktemp("checkout")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=skip, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".", folder=checkout)
    [built] = (checkout / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables under which Python takes the package from the installed wheel."""
    site = tmp_path_factory.mktemp("site")
    _pip("install", "--no-deps", "--target", str(site), str(wheel), folder=site)
    return {**os.environ, "PYTHONPATH": str(site)}


def _pip(*arguments: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def _python(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(checkout: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    in_checkout = {
        f"dartree_exp/conf/{f.relative_to(checkout / 'conf')}"
        for f in (checkout / "conf").rglob("*.yaml")
    }
    in_checkout |= {
        f"dartree_exp/kernels/{file.name}" for file in (checkout / "kernels").glob("*.py")
    }
    package = checkout / "src" / "dartree_exp"
    for kind in ("*.py", "*.jsonl", "*.safetensors", "report/**/*.yaml", "report/page/report.*"):
        files = (file.relative_to(package.parent) for file in package.rglob(kind))
        in_checkout |= {str(file) for file in files if "kernels" not in file.parts}
    assert in_checkout <= set(names), sorted(in_checkout - set(names))
    assert {name.split("/")[0] for name in names} == {"dartree_exp", "dartree_exp-0.1.0.dist-info"}
    assert (
        "dartree_exp/kernels/__init__.py" not in names
    )  # it would pass for another package of that name


def test_it_runs_in_an_empty_folder(installed: dict[str, str], tmp_path: Path) -> None:
    where = (
        "import dartree_exp, dartree_exp.conf, dartree_exp.kernels as k; "
        "print(dartree_exp.__file__, *k.__path__)"
    )
    assert str(ROOT) not in _python(installed, tmp_path, "-c", where)
    assert "tree.budget=auto" in _python(installed, tmp_path, "-m", "dartree_exp", "--help")
    assert "scoring: static" in _python(
        installed, tmp_path, "-m", "dartree_exp", "--cfg", "job", "+method=chain_ddtree"
    )


def test_it_decodes_in_an_empty_folder(installed: dict[str, str], tmp_path: Path) -> None:
    run = [
        "model=toy",
        "drafter=oracle",
        "benchmark=mini",
        "benchmark.limit=1",
        "decoding.max_new_tokens=16",
    ]
    _python(installed, tmp_path, "-m", "dartree_exp", *run)
    [summary] = (tmp_path / "multirun" / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["verdicts"]["exact"] == 1
