"""The specs of parts: what can be known about a part without importing it (torch-free).

Each room has its own kind of `Spec` in its `spec.py`, and a dictionary of its specs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, TypeVar

from dartree_exp.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A part: its name in a configuration, its line in `--help`, and its implementation.

    target: `module:Class`, imported when the part is made. reads: the knobs of its group that it
    reads; other knobs do not change the run.
    """

    name: str
    target: str
    meaning: str
    reads: tuple[str, ...] = ()

    def load(self) -> Any:
        """The object that `target` names. Raises ConfigError if it cannot be imported."""
        try:
            return resolve_name(self.target)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{self.name}: cannot import {self.target}: {error}") from error


S = TypeVar("S", bound=Spec)


class Parts(dict[str, S]):
    """Specs of one kind, by name; `kind` is the key that chooses one."""

    def __init__(self, kind: str, *specs: S) -> None:
        super().__init__((spec.name, spec) for spec in specs)
        self.kind = kind

    def __missing__(self, name: str) -> S:
        raise ConfigError(f"{self.kind}={name}: must be one of {', '.join(self)}")
