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
    """`source` imports `target`, both full module names.

    when: "start" (at module level), "call" (inside a function) or "types" (under
    `if TYPE_CHECKING`).
    """

    source: str
    target: str
    when: str = "start"


def imports(sources: Mapping[str, Path] = SOURCES) -> set[Import]:
    """Every import in the files of `sources`, package name -> folder."""
    files = {
        _module(package, file.relative_to(folder)): file
        for package, folder in sources.items()
        for file in folder.rglob("*.py")
    }
    modules = {name for module in files for name in with_packages(module)}
    return {
        Import(source, target, when)
        for source, file in files.items()
        for target, when in _imports(file, source, modules)
    }


def with_packages(module: str) -> set[str]:
    """A module and the packages it is in, which are imported with it."""
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts) + 1)}


def _module(package: str, file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _imports(file: Path, source: str, modules: set[str]) -> Iterator[tuple[str, str]]:
    """(imported module, when) for each import statement of a file."""
    for node, when in _statements(ast.parse(file.read_text()), "start"):
        if isinstance(node, ast.Import):
            yield from ((alias.name, when) for alias in node.names)
            continue
        package = source.split(".")
        if node.level:
            package = package[: len(package) - node.level + (file.name == "__init__.py")]
        base = ".".join([*(package if node.level else []), *([node.module] if node.module else [])])
        for alias in node.names:
            name = f"{base}.{alias.name}"
            yield (name if name in modules else base), when


def _statements(node: ast.AST, when: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, when
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        when = "call" if when == "start" else when
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        yield from _statements(child, "types" if typing_only and child in node.body else when)


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
