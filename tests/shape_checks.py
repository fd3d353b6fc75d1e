"""Array shapes of the annotations, checked at run time: what jaxtyping's import hook calls."""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"dartree_exp": ROOT / "src" / "dartree_exp", "dartree_exp.kernels": ROOT / "kernels"}
CALLS = 200
"""A function is checked in its first calls of every test file: hot ones took a quarter of the
suite's time.
"""

_calls: Counter[tuple[str, str]] = Counter()
_left_alone: list[Any] = []


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
    if not arrays:
        return function
    checked, name = beartype(function), (function.__module__, function.__qualname__)

    @functools.wraps(checked)
    def counted(*arguments: Any, **settings: Any) -> Any:
        _calls[name] += 1
        if _calls[name] == CALLS:
            _leave_alone(*name)
        return checked(*arguments, **settings)

    return counted


def _leave_alone(module: str, qualified: str) -> None:
    """Tell jaxtyping to call a function without checks. A function within a function has no name
    to find it by, and stays checked.
    """
    if "<locals>" not in qualified:
        found = attrgetter(qualified)(sys.modules[module])
        found = getattr(found, "__func__", found)  # of a class method
        if isinstance(found, FunctionType):  # a property is none
            found.__no_type_check__ = True  # type: ignore[attr-defined]
            _left_alone.append(found)


def check_all_again() -> None:
    """Check every function in its next calls, as at the start."""
    _calls.clear()
    for function in _left_alone:
        del function.__no_type_check__
    _left_alone.clear()


def _names_an_array(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_names_an_array(part) for part in get_args(hint))
