"""Which room may import which (DESIGN section 3), read from the source: function-level and
type-only imports count.
"""

import importlib.util
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("import_graph", ROOT / "docs" / "import_graph.py")
assert SPEC is not None and SPEC.loader is not None
import_graph = importlib.util.module_from_spec(SPEC)
sys.modules["import_graph"] = import_graph
SPEC.loader.exec_module(import_graph)
Import, PACKAGE = import_graph.Import, import_graph.PACKAGE

LOOP = ("decode", "run", "runs", "assemble", "generate")
DECODING = (*LOOP, "engines", "drafters", "trees", "budgets", "verify")
TENSORS = ("torch", "transformers", "triton")
WANDB = ("wandb", "wandb_workspaces")
ROOMS = (
    *("budgets", "config", "console", "drafters", "engines", "inputs", "interfaces", "metrics"),
    "models",
    *("parts", "prompts", "records", "report", "runs", "sweeps", "trackers", "training"),
    *("trees", "verify", "kernels"),
)
SPECS = (*(f"{room}.spec" for room in (*ROOMS, "drafters.heads")), "trees.published")

FORBIDDEN: dict[str, tuple[str, ...]] = {
    # room: rooms, their modules and libraries that it must not import
    "errors": ROOMS,
    "interfaces": tuple(room for room in ROOMS if room != "interfaces"),
    "decode": ("config", "records", "report", "models", "trackers", "sweeps", "runs", "run"),
    "parts": tuple(room for room in ROOMS if room != "parts"),
    "config": (*TENSORS, "models", *DECODING),
    "console": (*TENSORS, *WANDB, *DECODING, "models", "records", "report", "sweeps", "trackers"),
    "inputs": (*TENSORS, *LOOP, "engines", "trees", "budgets", "verify", "sweeps", "report"),
    "models": ("drafters", "trees", "budgets", "verify", *LOOP),
    "engines": ("models", "drafters", "trees", "budgets", "verify", "config", *LOOP),
    "drafters": ("verify", "budgets", "config", "models.fetch", *LOOP),
    "trees": ("models", "drafters", "budgets", "verify", "engines", "config", *LOOP),
    "budgets": ("trees", "drafters", "models", "engines", "verify", "config", *LOOP),
    "verify": ("drafters", "models", "budgets", "config", *LOOP),
    "kernels": ROOMS,
    "prompts": (*TENSORS, *DECODING),
    "records": ("config", *WANDB, *TENSORS, *DECODING),
    "metrics": (*TENSORS, *(room for room in ROOMS if room not in ("metrics", "records"))),
    "runs": ("sweeps", "report", "trackers", "run", "training"),
    "sweeps": (*TENSORS, *DECODING, "models"),
    "trackers": (*DECODING, "models"),
    "report": (*TENSORS, *DECODING, "models", "trackers"),
    "training": ("decode", "run", "runs"),
}
ALLOWED: dict[str, tuple[str, ...]] = {
    "config": SPECS,
    "inputs": (*SPECS, "trees.rank_paths"),  # the shapes are files
    "budgets": ("trees.prune",),
    "training": ("decode.speculate", "decode.autoregress", "decode.Method"),  # the loop as one call
}
"""Modules of a forbidden room, or names of a module, that are allowed all the same."""


def short(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.")


def inside(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def forbidden(graph):
    """(room, what it must not import) -> the imports."""
    found = {}
    for edge in graph:
        room, target = import_graph.room(edge.source), short(edge.target)
        if inside(target, ALLOWED.get(room, ())) or import_graph.room(edge.target) == room:
            continue
        for place in FORBIDDEN.get(room, ()):
            if inside(target, (place,)):
                found.setdefault((room, place), []).append(edge)
    return found


def cycle(graph):
    try:
        TopologicalSorter(import_graph.between_rooms(graph)).prepare()
    except CycleError as error:
        return error.args[1]
    return None


@pytest.fixture(scope="module")
def graph():
    return import_graph.imports()


def test_no_room_imports_what_it_must_not(graph):
    found = [edge for edges in forbidden(graph).values() for edge in edges]
    assert not found, "\n".join(f"{edge.source} imports {edge.target}" for edge in found)


def test_every_room_has_a_rule():
    folders = {init.parent.name for init in (ROOT / "src" / PACKAGE).glob("*/__init__.py")}
    assert folders | {"kernels"} == set(ROOMS) and set(ROOMS) <= FORBIDDEN.keys()


def test_rooms_form_no_cycle(graph):
    assert cycle(graph) is None


def test_specs_import_the_standard_library_and_parts_only(graph):
    """So that nothing can come back through the one module that `config` reads of a room."""
    for edge in graph:
        if inside(short(edge.source), SPECS) and edge.target.startswith(PACKAGE):
            target = short(edge.target)
            assert target.startswith("parts") or inside(target, SPECS), edge


def test_hydras_inside_is_not_used(graph):
    assert not [edge for edge in graph if edge.target.startswith("hydra._internal")]


def test_interfaces_import_torch_shapes_and_the_standard_library_only(graph):
    targets = {
        edge.target.partition(".")[0]
        for edge in graph
        if import_graph.room(edge.source) == "interfaces"
        and import_graph.room(edge.target) != "interfaces"
    }
    assert targets <= {"torch", "jaxtyping", *sys.stdlib_module_names}


@pytest.mark.parametrize("room", ["config", "console", "inputs", "records", "report", "sweeps"])
def test_a_room_without_tensors_imports_none_through_others(graph, room):
    """By module-level imports; the command line's tests start processes and look."""
    below = {}
    for edge in graph:
        if edge.when == "start":
            below.setdefault(edge.source, set()).update(import_graph.with_packages(edge.target))
    seen, ahead = set(), {name for name in below if import_graph.room(name) == room}
    while ahead:
        seen.add(name := ahead.pop())
        ahead |= below.get(name, set()) - seen
    assert not {"torch", "transformers", "triton"} & seen


def test_the_picture_is_up_to_date():
    drawn = import_graph.PICTURE.read_text()
    assert drawn == import_graph.svg(import_graph.house()), "python docs/import_graph.py --write"


def test_the_picture_leaves_out_what_other_imports_imply_and_puts_rooms_above_their_imports():
    rooms = {"run": {"decode", "trees"}, "decode": {"trees"}, "trees": set(), "errors": set()}
    edges = import_graph.needed(rooms)
    assert edges == {"run": {"decode"}, "decode": {"trees"}, "trees": set(), "errors": set()}
    levels, paths = import_graph.rows({**edges, "run": {"decode", "errors"}})
    assert [sorted(level) for level in levels] == [
        ["run"],
        ["decode", "run>errors:1"],
        ["errors", "trees"],
    ]
    assert ["run", "run>errors:1", "errors"] in paths
    picture = import_graph.svg(rooms)
    assert picture.count("<path") == 2 and "run imports decode, trees" in picture


def module(folder: Path, name: str, text: str) -> None:
    file = folder / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "from dartree_exp.drafters.dflash import model",
        "def late():\n    import dartree_exp.drafters.dflash.model",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..drafters import dflash",
        "from .. import drafters",
    ],
)
def test_a_planted_edge_is_found(tmp_path, line):
    module(tmp_path, "drafters/dflash", "")
    module(tmp_path, "drafters/__init__", "")
    module(tmp_path, "trees/planted", line)
    graph = import_graph.imports({PACKAGE: tmp_path})
    assert list(forbidden(graph)) == [("trees", "drafters")]


def test_a_planted_cycle_is_found(tmp_path):
    module(tmp_path, "records/files", "from dartree_exp.metrics import stats")
    module(tmp_path, "metrics/stats", "def late():\n    from dartree_exp.report import table")
    module(tmp_path, "report/table", "")
    assert cycle(import_graph.imports({PACKAGE: tmp_path})) is None
    module(tmp_path, "report/table", "if TYPE_CHECKING:\n    from dartree_exp import records")
    assert set(cycle(import_graph.imports({PACKAGE: tmp_path}))) == {"records", "metrics", "report"}
