"""Notebooks: committed without outputs, and run from the first to the last in the order of their
README.
"""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "notebooks"
ORDER = ("tour", "anatomy", "sweep")  # the first makes the records that the others read


def unstripped(notebook: nbformat.NotebookNode) -> list[str]:
    """Ids of the code cells that carry outputs or a count of executions."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.id for cell in code if cell.outputs or cell.execution_count is not None]


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    NotebookClient(
        notebook, timeout=1400, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


def test_every_notebook_is_executed_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_outputs_are_stripped(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert unstripped(notebook) == []


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(1500)  # a minute or two alone; ten on cores that others keep busy
def test_they_run_in_order(embedded_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    shutil.copytree(FOLDER, folder)
    for name in ORDER:
        notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
        execute(notebook, folder)
        assert unstripped(notebook), "executing leaves outputs, or the check above could not fail"
    assert not list(FOLDER.glob("multirun"))


@pytest.mark.slow
def test_control_a_cell_that_fails_fails_the_notebook(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(notebook, tmp_path)
