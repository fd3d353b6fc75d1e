"""Records of the wrong shape are one error of their run, whatever the files contain."""

import copy
import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dartree_exp.errors import UserError
from dartree_exp.records import RecordError, Run, SampleRecord, find_runs
from dartree_exp.records.layout import CONFIG, ENVIRONMENT, ROUNDS, SAMPLES, STATUS, SUMMARY, TREES
from dartree_exp.records.shape import check
from dartree_exp.report.__main__ import main
from dartree_exp.sweeps.progress import running_runs
from dartree_exp.sweeps.watch import overview
from sample_records import mini_run, recorded_run, write_run

JSON_FILES, LINES = (STATUS, ENVIRONMENT, SUMMARY), (SAMPLES, ROUNDS, TREES)
WRONG = [b"[]", b"null", b"{", b"", b"\xff\xfe\x00", b"[" * 100_000, None]


def spoil(file, content):
    """Replace a file by other bytes, or by a folder (None)."""
    file.unlink(missing_ok=True)
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)


@pytest.mark.parametrize("content", WRONG, ids=lambda content: repr(content)[:12])
@pytest.mark.parametrize("name", [*JSON_FILES, CONFIG, SAMPLES, ROUNDS, TREES])
def test_a_damaged_run_is_named_and_the_others_are_reported(tmp_path, capsys, name, content):
    if name in LINES and content is not None:
        content += b"\n" + content + b"\n"  # an unfinished last line is not damage
    write_run(tmp_path / "a", mini_run(0), budget=16)
    recorded_run(tmp_path / "b")
    write_run(tmp_path / "c", mini_run(1), budget=64)
    spoil(tmp_path / "b" / name, content)
    assert [run.path.name for run in find_runs(tmp_path)] == ["a", "b", "c"]
    assert main([str(tmp_path)]) == 2
    bad = Run(tmp_path / "b").unreadable
    assert f"error: {bad}\n" in capsys.readouterr().err
    assert str(tmp_path / "b") in bad and "\n" not in bad
    assert len((tmp_path / "comparison.csv").read_text().splitlines()) > 2
    shown, _ = overview(tmp_path)
    assert "DONE" in str(shown.renderables[1]) and running_runs(tmp_path) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two intact runs, and the bytes of the files of the first."""
    folder = tmp_path_factory.mktemp("whole")
    recorded_run(folder / "a")
    write_run(folder / "b", mini_run(0, prompts=2), budget=16)
    return folder


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value, path=()):
    """The path of every part of a JSON value."""
    yield path
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(inner, (*path, key))


def mutated(value, place, new):
    if not place:
        return new
    changed = copy.deepcopy(value)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    if new is Ellipsis:
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return changed


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_part_may_be_anything(whole, tmp_path_factory, data):
    """If part of a record is replaced, the other runs are still reported, without a traceback."""
    name = data.draw(st.sampled_from([*JSON_FILES, *LINES]))
    content = (whole / "a" / name).read_text() if (whole / "a" / name).exists() else "{}"
    values = (
        [json.loads(line) for line in content.splitlines()]
        if name in LINES
        else json.loads(content)
    )
    place = data.draw(st.sampled_from(list(places(values))))
    new = data.draw(st.just(Ellipsis) | VALUES) if place else data.draw(VALUES)
    changed = mutated(values, place, new)
    text = (
        "".join(json.dumps(line) + "\n" for line in changed)
        if name in LINES and isinstance(changed, list)
        else None
    )
    folder = tmp_path_factory.mktemp("spoilt")
    try:
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        (folder / "a" / name).write_text(json.dumps(changed) if text is None else text)
        assert main([str(folder)]) in (0, 2)
        assert (folder / "b" / "table.md").is_file()
        try:
            main([str(folder / "a"), "--html", str(folder / "page.html")])
            assert Run(folder / "a").unreadable or (folder / "page.html").is_file()
        except UserError as error:
            pytest.fail(f"{error} left the command")
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -5], [True, 1.0, "1", None, 2**80]),
        (float, [0, 1.5], [True, "1", float("nan"), float("inf"), 10**400]),
        (str | None, ["", None], [0, []]),
        (list[int], [[], [1]], [[1.5], (1,), {"a": 1}, None]),
        (dict[str, float], [{}, {"a": 1}], [{"a": "1"}, []]),
        (dict[str, object] | None, [None, {"a": []}], [[], 0]),
    ],
)
def test_types_are_distinguished(hint, good, bad):
    fits = check(hint)
    assert all(map(fits, good)) and not any(map(fits, bad))


def test_a_field_of_another_type_is_named():
    line = mini_run()[0].to_dict() | {"ids": "1, 2"}
    with pytest.raises(RecordError, match="SampleRecord: ids cannot be '1, 2'"):
        SampleRecord.from_dict(line)
