"""The import graph of `dartree_exp`, read from the source without importing it.

    python docs/import_graph.py            list which room imports which
    python docs/import_graph.py --write    draw docs/images/rooms.svg again

A room is a folder of the package, or a module at its top level. Imports inside functions and under
`if TYPE_CHECKING` count like all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = "dartree_exp"
ROOT = Path(__file__).resolve().parents[1]
SOURCES = {PACKAGE: ROOT / "src" / PACKAGE, f"{PACKAGE}.kernels": ROOT / "kernels"}
PICTURE = ROOT / "docs" / "images" / "rooms.svg"


@dataclass(frozen=True)
class Import:
    """`source` imports `target`, both full module names; types_only: under `if TYPE_CHECKING`."""

    source: str
    target: str
    types_only: bool = False


def imports(sources: Mapping[str, Path] = SOURCES) -> set[Import]:
    """Every import in the files of `sources`, package name -> folder."""
    files = {
        _module(package, file.relative_to(folder)): file
        for package, folder in sources.items()
        for file in folder.rglob("*.py")
        if package != PACKAGE or "kernels" not in file.relative_to(folder).parts[:-1]
    }
    return {
        Import(source, target, types_only)
        for source, file in files.items()
        for target, types_only in _imports(ast.parse(file.read_text()), source, file, files)
    }


def _module(package: str, file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _imports(
    tree: ast.Module, source: str, file: Path, modules: Iterable[str]
) -> Iterator[tuple[str, bool]]:
    """(imported module, whether for types only) for each import statement of a file."""
    typing_only = {
        statement
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for part in block.body
        for statement in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = source.split(".")
                above = above[: len(above) - node.level + (file.name == "__init__.py")]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield (name if name in modules else base), node in typing_only


def room(module: str) -> str:
    """The room of one of our modules; of another one its package at the top."""
    first, _, rest = module.partition(".")
    return (rest.partition(".")[0] or first) if first == PACKAGE else first


def between_rooms(graph: Iterable[Import]) -> dict[str, set[str]]:
    """Room -> the other rooms of the package that it imports."""
    found: dict[str, set[str]] = {}
    for edge in graph:
        source, target = room(edge.source), room(edge.target)
        found.setdefault(source, set())
        if edge.target.partition(".")[0] == PACKAGE and source != target:
            found[source].add(target)
            found.setdefault(target, set())
    return found


def as_text(rooms: Mapping[str, set[str]]) -> str:
    """A line for each room: what it imports."""
    return "".join(f"{name}: {', '.join(sorted(rooms[name])) or '-'}\n" for name in sorted(rooms))


def layers(rooms: Mapping[str, set[str]]) -> list[list[str]]:
    """The rooms in rows, each above everything it imports. Raises graphlib.CycleError."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(rooms).static_order():
        height[name] = 1 + max((height[below] for below in rooms[name]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for name in sorted(height):
        rows[-1 - height[name]].append(name)
    return rows
