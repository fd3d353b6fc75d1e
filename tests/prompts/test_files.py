"""Formats of a prompts file; a damaged row is refused with its number."""

import gzip
import json

import datasets
import pytest
from benchmark_support import benchmark

from dartree_exp.errors import UserError
from dartree_exp.prompts import files as prompt_files
from dartree_exp.prompts import load_prompts

ROWS = [{"prompt": "one"}, {"prompt": "two"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
LIST = json.dumps(ROWS, indent=1).encode()
BOM = b"\xef\xbb\xbf"


def load(path, content):
    path.write_bytes(content)
    return [prompt.turns for prompt in load_prompts(benchmark("mbpp", path=str(path), seed=0))]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows"])
@pytest.mark.parametrize(
    "content", [LINES, LIST, BOM + LINES, BOM + LIST, b"\n" + LINES], ids=range(5)
)
@pytest.mark.parametrize("packed", [False, True])
def test_lists_and_lines_are_read_under_any_name(tmp_path, name, content, packed):
    path = tmp_path / (f"{name}.gz" if packed else name)
    assert load(path, gzip.compress(content) if packed else content) == [["one"], ["two"]]


def test_parquet_is_read_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    rows = [{"prompt": ["a", "b"]}, {"prompt": ["c", "d"]}]
    datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / "rows.parquet"))
    before = sorted(tmp_path.iterdir())
    prompts = load_prompts(benchmark("mt_bench", path=str(tmp_path / "rows.parquet")))
    assert [prompt.turns for prompt in prompts] == [["a", "b"], ["c", "d"]]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hello" * 9])
def test_damaged_parquet_is_one_line(tmp_path, content, capfd):
    with pytest.raises(UserError, match=r"rows\.parquet: cannot be read as Parquet: [^\n]+$"):
        load(tmp_path / "rows.parquet", content)
    assert capfd.readouterr() == ("", "")


DAMAGE = {
    "half a surrogate pair": rb'{"prompt": "\ud800"}',
    "nested too deeply": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not UTF-8": b'{"prompt": "\xff"}',
    "not JSON": b'{"prompt": two}',
    "not a JSON object": b'["two"]',
    "digits": b'{"prompt": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_line_has_its_number(tmp_path, reason):
    with pytest.raises(UserError, match=rf"rows\.jsonl, line 2[: ].*{reason}[^\n]*$"):
        load(tmp_path / "rows.jsonl", b'{"prompt": "one"}\n' + DAMAGE[reason] + b"\n")


@pytest.mark.parametrize("reason", sorted(DAMAGE.keys() - {"not UTF-8"}))
def test_a_damaged_item_of_a_list_has_its_number(tmp_path, reason):
    with pytest.raises(UserError, match=rf"row 1 of .*rows\.json: .*{reason}[^\n]*$"):
        load(tmp_path / "rows.json", b'[{"prompt": "one"}, ' + DAMAGE[reason] + b"]")


@pytest.mark.parametrize(
    "content", [b"[", b"[{}", b"[{} {}]", b"[{},]", b"[{}] x", b'[{"prompt": "\xff"}]']
)
def test_damaged_lists_are_refused(tmp_path, content):
    with pytest.raises(UserError, match=r"rows\.json"):
        load(tmp_path / "rows.json", content)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_file_that_is_too_large_is_refused_before_reading_it_all(tmp_path, monkeypatch, name):
    monkeypatch.setattr(prompt_files, "MAX_BYTES", 1 << 16)
    content = b'{"prompt": "' + b"a" * (1 << 24) + b'"}\n'
    packed = gzip.compress(content) if name.endswith(".gz") else content
    with pytest.raises(UserError, match=rf"{name}: has more than 65536 bytes \(MAX_BYTES"):
        load(tmp_path / name, packed)
    monkeypatch.setattr(prompt_files, "MAX_BYTES", len(content))
    assert len(load(tmp_path / name, packed)) == 1


def test_a_git_lfs_pointer_has_advice(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    for name in ("rows.jsonl", "rows.jsonl.gz", "rows.parquet"):
        with pytest.raises(UserError, match=rf"{name} is a Git LFS pointer.*git lfs pull"):
            load(tmp_path / name, pointer)
