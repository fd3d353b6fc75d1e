"""Every reader of what others wrote, with damaged input: a UserError of one line or a result, and
nothing left behind.

The same examples in every run (`damage.bounded`); each test says how many there must be of either
outcome, so that none can pass by refusing, or accepting, everything.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from damage import ODD, bounded, check, copy, damages, inflict, listing, only_user_errors
from hypothesis import given
from hypothesis import strategies as st

from dartree_exp.config import compose
from dartree_exp.config.knobs import knobs
from dartree_exp.config.schema import BenchmarkConfig
from dartree_exp.inputs.checks import check_files
from dartree_exp.inputs.digests import input_digests
from dartree_exp.prompts import load_prompts
from dartree_exp.records.reader import find_runs
from dartree_exp.records.schema import RoundRecord
from dartree_exp.records.trees import TreeRecord
from dartree_exp.report.__main__ import main as report
from sample_records import ENVIRONMENT, sample, write_run

CONF = Path(__file__).resolve().parents[2] / "conf"


ODD_TEXTS = [
    *(
        "",
        "null",
        "true",
        "-1",
        "0",
        "1e400",
        "nan",
        "9" * 30,
        "abc",
        "[]",
        "[1,x]",
        "{}",
        "{a: 1}",
        "'",
        '"',
        "a,b",
        "..",
        "a=b",
    ),
    *(
        "glob(*)",
        "range(1,4)",
        "choice(1,2)",
        "int(3)",
        "${tree.budget}",
        "${nothing}",
        "${oc.env:HOME}",
        "???",
        "\n",
        "\x00",
        "é",
    ),
    *(
        "'$x'",
        "'$5'",
        "pkg://os/x",
        "~nobody/x",
        "/dev/null",
        "nobody/nothing",
        "x" * 5000,
        "[[1]]",
    ),
]
KEYS = [key for key, _, _ in knobs()]
GROUPS = [
    *("model", "drafter", "tree", "budget", "benchmark", "decoding", "engine", "tracker"),
    "method",
    "experiment",
    "hydra",
]
OVERRIDE = st.builds(
    lambda sign, key, value: f"{sign}{key}={value}",
    st.sampled_from(["", "", "", "+", "++", "~"]),
    st.one_of(*[st.sampled_from(KEYS)] * 4, st.sampled_from(GROUPS), st.text(max_size=8)),
    st.one_of(st.sampled_from(ODD_TEXTS), st.integers(-3, 99).map(str), st.text(max_size=8)),
)


def test_settings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    counts: dict[str, int] = {}

    @bounded(160)
    @given(st.lists(OVERRIDE, min_size=1, max_size=2))
    def read(overrides: list[str]) -> None:
        before = listing(place)
        config = only_user_errors(
            lambda: compose(["model=toy", "drafter=random", *overrides]), counts
        )
        if config is not None:
            only_user_errors(lambda: check_files(config), counts)
            input_digests(config)
        assert listing(place) == before

    read()
    check(counts, 25, 3)


ROWS: list[dict[str, Any]] = [
    {"question": "one", "category": "a", "n": 1},
    {"turns": ["two", "three"]},
    {"question": "four"},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
PROMPT_FILES = {
    "p.jsonl": LINES.encode(),
    "p.json": json.dumps(ROWS).encode(),
    "p.jsonl.gz": gzip.compress(LINES.encode()),
}
TEMPLATE = st.one_of(
    *[st.sampled_from(["$question", "Q: $question\n"])] * 4, st.text("$ax{}", max_size=6)
)


def benchmark(**changes: Any) -> BenchmarkConfig:
    fields = yaml.safe_load((CONF / "benchmark" / "_shared.yaml").read_text())
    return BenchmarkConfig(**(fields | {"name": "p", "version": "1"} | changes))


@pytest.mark.parametrize("name", PROMPT_FILES)
def test_prompts(place: Path, name: str) -> None:
    counts: dict[str, int] = {}
    folder = place / "prompts"

    @bounded(100)
    @given(damages([name]), TEMPLATE, st.sampled_from(["", "", "", " $n", "$"]))
    def read(found: list[tuple[Any, ...]], template: str, optional: str) -> None:
        folder.mkdir(exist_ok=True)
        copy(folder, folder.parent / "scratch")
        scratch = folder.parent / "scratch"
        (scratch / name).write_bytes(PROMPT_FILES[name])
        for damage in found:
            inflict(scratch, damage)
        before = listing(place)
        config = benchmark(path=str(scratch / name), template=template, optional=optional)
        only_user_errors(lambda: load_prompts(config), counts)
        assert listing(place) == before

    read()
    check(counts, 25, 3)


def test_prompts_in_parquet(place: Path) -> None:
    import datasets

    source = place / "parquet"
    source.mkdir()
    datasets.Dataset.from_list([{"question": text, "n": 1} for text in ("one", "two")]).to_parquet(
        str(source / "p.parquet")
    )
    counts: dict[str, int] = {}

    @bounded(40)
    @given(damages(["p.parquet"]))
    def read(found: list[tuple[Any, ...]]) -> None:
        scratch = copy(source, place / "scratch")
        for damage in found:
            inflict(scratch, damage)
        before = listing(place)
        only_user_errors(
            lambda: load_prompts(benchmark(path=str(scratch / "p.parquet"), template="$question")),
            counts,
        )
        assert listing(place) == before

    read()
    check(counts, 5, 5)


@pytest.fixture(scope="module")
def runs(place: Path) -> Path:
    root = place / "runs"
    for name in ("a", "b"):
        samples = [sample(f"mini/{i}", [2, 3]) for i in range(2)]
        rounds = [
            RoundRecord(s.id, 0, i, 3 + 2 * i, 1, [1], [5], [0], 6, 4, 6, 2, n, n, {"draft": 0.1})
            for s in samples
            for i, n in enumerate(s.acceptance_lengths)
        ]
        trees = [
            TreeRecord(
                s.id,
                0,
                0,
                [1, 5, 6],
                [-1, 0, 0],
                [0.0, -0.1, -2.0],
                [0, 0, 1],
                None,
                [0, 1],
                6,
                "c",
                {},
            )
            for s in samples
        ]
        write_run(
            root / name,
            samples,
            method=f"m_{name}",
            environment=ENVIRONMENT,
            rounds=rounds,
            trees=trees,
        )
    return root


RECORDS = [
    "status.json",
    "config.yaml",
    "environment.json",
    "summary.json",
    "samples.jsonl",
    "rounds.jsonl",
    "trees.jsonl",
]
WRITTEN = ("table.md", "table.csv", "comparison.md", "comparison.csv")


def test_run_records(place: Path, runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    counts: dict[str, int] = {}

    @bounded(40)
    @given(damages([f"a/{name}" for name in RECORDS]))
    def read(found: list[tuple[Any, ...]]) -> None:
        scratch = copy(runs, place / "scratch")
        for damage in found:
            inflict(scratch, damage)
        before = listing(place)
        for run in only_user_errors(lambda: find_runs(scratch), counts):
            only_user_errors(
                lambda run=run: (
                    run.state,
                    run.samples,
                    run.rounds,
                    run.trees,
                    run.config,
                    run.summary,
                ),
                counts,
            )
        assert report([str(scratch)]) in (0, 2)
        assert [name for name in listing(place) if not name.endswith(WRITTEN)] == before
        assert (scratch / "b" / "table.md").exists()  # a damaged run stops nobody else's report

    read()
    assert "Traceback" not in capfd.readouterr().err
    check(counts, 10, 20)


def test_the_damages_differ() -> None:
    assert len({repr(value) for value in ODD}) == len(ODD)
