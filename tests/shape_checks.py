"""Array shapes of the annotations, checked at run time: what jaxtyping's import hook calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"dartree_exp": ROOT / "src" / "dartree_exp", "dartree_exp.kernels": ROOT / "kernels"}


def annotated_modules() -> list[str]:
    """The modules of the package that annotate shapes."""
    return [
        ".".join([package, *file.relative_to(folder).with_suffix("").parts])
        for package, folder in FOLDERS.items()
        for file in sorted(folder.rglob("*.py"))
        if "\nfrom jaxtyping import " in file.read_text(encoding="utf-8")
    ]


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype on the annotations with array shapes; mypy has checked the others. Tests hand in
    stand-ins for targets and drafters, and most protocols cannot be checked at run time.
    """
    arrays = {
        name: hint for name, hint in function.__annotations__.items() if _names_an_array(hint)
    }
    function.__annotations__ = arrays
    return beartype(function) if arrays else function


def _names_an_array(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_names_an_array(part) for part in get_args(hint))
