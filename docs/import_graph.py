"""The import graph of `dartree_exp`, read from the source without importing it.

    python docs/import_graph.py            list which room imports which
    python docs/import_graph.py --write    draw docs/images/rooms.svg again

A room is a folder of the package, or a module at its top level. Imports inside functions and under
`if TYPE_CHECKING` count like all others.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path

PACKAGE = "dartree_exp"
ROOT = Path(__file__).resolve().parents[1]
SOURCES = {PACKAGE: ROOT / "src" / PACKAGE, f"{PACKAGE}.kernels": ROOT / "kernels"}
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
WIDTH, HEIGHT, GAP, STEP = 96, 30, 22, 76  # pixels, of a box, between boxes and between rows


@dataclass(frozen=True)
class Import:
    """The module `source` imports `target`: a module, or what is imported from one by name.

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
    """(what is imported, when) for each import statement of a file."""
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
            yield (base if base == PACKAGE and name not in modules else name), when


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


def needed(rooms: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The imports that no others imply: those left out are of rooms that an imported room imports
    in turn. Raises graphlib.CycleError.
    """
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter(rooms).static_order():
        below[name] = set().union(rooms[name], *(below[other] for other in rooms[name]))
    return {
        name: {o for o in others if not any(o in below[other] for other in others)}
        for name, others in rooms.items()
    }


def rows(edges: Mapping[str, set[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Rows in which each room is above all it imports, and each edge's path through them.

    Where an edge passes a row, the row holds a place for it, named `source>target:row`. Rows are
    ordered so that neighbours lie near each other (the barycentre rule of Sugiyama's method).
    """
    height: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        height[name] = 1 + max((height[below] for below in edges[name]), default=-1)
    levels: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for name in sorted(height):
        levels[height[name]].append(name)
    paths = []
    for source, target in sorted((s, t) for s, targets in edges.items() for t in targets):
        passed = range(height[source] - 1, height[target], -1)
        places = [f"{source}>{target}:{row}" for row in passed]
        for row, place in zip(passed, places, strict=True):
            levels[row].append(place)
        paths.append([source, *places, target])
    beside: dict[str, list[str]] = {}
    for path in paths:
        for one, other in pairwise(path):
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
    for _ in range(12):
        for level in (*levels, *reversed(levels)):
            at = {name: x for row in levels for name, x in zip(row, _places(row), strict=True)}
            level.sort(key=lambda name: _mean([at[other] for other in beside.get(name, [name])]))
    return levels[::-1], paths


def _places(row: list[str]) -> list[float]:
    """The middle of each box or passing edge of a row, centred on 0, in pixels."""
    widths = [GAP if ">" in name else WIDTH + GAP for name in row]
    ends = list(accumulate(widths))
    return [end - width / 2 - ends[-1] / 2 for end, width in zip(ends, widths, strict=True)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def svg(rooms: Mapping[str, set[str]]) -> str:
    """The rooms as boxes, each above what it imports; lines are the imports that no others
    imply, and a box's tooltip lists all of them.
    """
    levels, paths = rows(needed(rooms))
    at = {
        name: (x, y * STEP)
        for y, row in enumerate(levels)
        for name, x in zip(row, _places(row), strict=True)
    }
    left = min(x for x, _ in at.values()) - WIDTH / 2 - GAP
    right = max(x for x, _ in at.values()) + WIDTH / 2 + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {-HEIGHT} '
        f'{right - left:.0f} {(len(levels) - 1) * STEP + 2 * HEIGHT}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        f'<rect x="{left:.0f}" y="{-HEIGHT}" width="100%" height="100%" fill="white"/>',
    ]
    for path in paths:
        points = [at[name] for name in path]
        line = f"M {points[0][0]:.0f} {points[0][1]:.0f}"
        for (x0, y0), (x1, y1) in pairwise(points):
            middle = (y0 + y1) / 2
            line += f" C {x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
        parts.append(f'<path d="{line}" fill="none" stroke="#8a94a6" stroke-width="1.5"/>')
    for name in sorted(rooms):
        x, y = at[name]
        imported = ", ".join(sorted(rooms[name])) or "no room"
        parts.append(
            f'<g><title>{name} imports {imported}</title><rect x="{x - WIDTH / 2:.0f}" '
            f'y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#eef3fb" '
            f'stroke="#3b5b92"/><text x="{x:.0f}" y="{y + 5:.0f}">{name}</text></g>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def house() -> dict[str, set[str]]:
    """The rooms of this repository. The package's own `__init__` is none."""
    found = between_rooms(imports())
    return {name: others - {PACKAGE} for name, others in found.items() if name != PACKAGE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"draw {PICTURE.name} again")
    if parser.parse_args().write:
        PICTURE.write_text(svg(house()))
    else:
        print(as_text(house()), end="")


if __name__ == "__main__":
    main()
