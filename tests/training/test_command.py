"""Training commands: what they write, and what they say to mistakes."""

import gzip
import importlib
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from training_support import run

import dartree_exp
from dartree_exp.training import command
from dartree_exp.training.export import main as export

PACKAGE = command.PACKAGE
WRITERS = {
    "generate": ["--prompts", "p", "--out"],
    "capture": ["--data", "d", "--out"],
    "export": ["--run", "r", "--data", "d", "--out"],
    "validate": ["--drafter", "d", "--features", "f", "--out"],
    "edges": ["--drafter", "d", "--data", "d", "--out"],
    "tau": ["--drafter", "d", "--data", "d", "--out"],
    "card": ["--drafter", "d", "--out"],
    "calibrate": ["--drafter", "d", "--data", "d", "--out"],
}


def outcome(name, arguments, capsys):
    """(exit status, stderr) of a command."""
    main = importlib.import_module(f"dartree_exp.training.{name}").main
    try:
        code = command.run(main, [str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_into_the_package(name, capsys):
    place = PACKAGE / "drafters" / "weights" / "new.json"
    code, said = outcome(name, [*WRITERS[name], place], capsys)
    assert code == 2 and said.count("\n") == 1
    assert "is inside the installed package, where nothing may be written" in said
    assert not place.exists()


def test_the_package_is_the_imported_one():
    assert (PACKAGE / "__init__.py").samefile(dartree_exp.__file__)


def test_a_calibration_is_told_where_to_write(capsys):
    code, said = outcome("calibrate", ["--drafter", "d", "--data", "d"], capsys)
    assert code == 2 and "required: --out" in said
    weights = PACKAGE / "drafters" / "weights" / "smollm2_135m_markov"
    command_line = [
        "--drafter",
        weights,
        "--data",
        "d",
        "--diagram",
        weights / "x.png",
        "--out",
        "t.json",
    ]
    assert "is inside the installed package" in outcome("calibrate", command_line, capsys)[1]


def said_in_one_line(outcome, code):
    assert outcome[0] == code, outcome
    assert outcome[1].count("\n") == 1 and "Traceback" not in outcome[1], outcome[1]
    return outcome[1]


@pytest.fixture(scope="module")
def work(tiny, tmp_path_factory):
    """A run, its export, and damaged versions of everything a command reads."""
    root = tmp_path_factory.mktemp("work")
    folder = root / "training" / "run"
    run(tiny, folder, steps=2)
    paths = ["--data", str(tiny.data), "--target", str(tiny.target)]
    assert export(["--run", str(folder), *paths, "--holdout", "2", "--out", str(root / "out")]) == 0
    shutil.copytree(folder, root / "cut")
    checkpoint = root / "cut" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-50])
    (root / "prompts.jsonl").write_text('{"id": "a", "domain": "math", "prompt": "x"}\n')
    (root / "prompts_null.jsonl").write_text('{"id": "a", "domain": "math", "prompt": null}\n')
    (root / "prompts_list.jsonl").write_text("[1, 2]\n")
    (root / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    (root / "cut.jsonl.gz").write_bytes(gzip.compress(tiny.data.read_bytes())[:-20])
    (root / "plain.jsonl.gz").write_text("no gzip\n")
    (root / "empty.jsonl").write_text("")
    row = json.loads(tiny.data.read_text().splitlines()[0])
    (root / "strings.jsonl").write_text(json.dumps({**row, "prompt_ids": "12"}) + "\n")
    (root / "large.jsonl").write_text(json.dumps({**row, "output_ids": [40]}) + "\n")
    (root / "long.jsonl").write_text(json.dumps({**row, "output_ids": [5] * 400}) + "\n")
    for name in ("qwen", "sizeless", "tokenless", "weightless", "torn", "unreadable"):
        shutil.copytree(tiny.target, root / name)
    config = json.loads((tiny.target / "config.json").read_text())
    (root / "qwen" / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    (root / "sizeless" / "config.json").write_text(json.dumps({**config, "hidden_size": None}))
    (root / "unreadable" / "config.json").write_text("{")
    (root / "weightless" / "model.safetensors").unlink()
    (root / "tokenless" / "tokenizer.json").unlink()
    (root / "tokenless" / "tokenizer_config.json").unlink()
    (root / "torn" / "model.safetensors").write_bytes(b"x" * 100)
    (root / "card_list").mkdir()
    (root / "card_list" / "card.json").write_text("[]")
    shutil.copytree(root / "out", root / "out_cut")
    (root / "out_cut" / "model.safetensors").write_bytes(b"x" * 100)
    (root / "measured.json").write_text("null")
    return SimpleNamespace(root=root, run=folder, **vars(tiny))


CAPTURE = ["--data={data}", "--target={target}", "--out={new}", "--taps", "0", "2", "--holdout=2"]
EXPORT = ["--run={run}", "--data={data}", "--target={target}", "--holdout=2", "--out={new}"]
TAU = ["--drafter={root}/out", "--data={data}", "--holdout=2", "--samples=1", "--cap=2", "--set"]
MISTAKES = [
    (
        "generate",
        ["--prompts={root}/nowhere", "--out={new}", "--target={target}"],
        "nowhere: cannot be read",
    ),
    (
        "generate",
        ["--prompts={root}/prompts_null.jsonl", "--out={new}", "--target={target}"],
        "line 1: id and prompt must",
    ),
    (
        "generate",
        ["--prompts={root}/prompts_list.jsonl", "--out={new}", "--target={target}"],
        "line 1: not a prompt",
    ),
    (
        "generate",
        ["--prompts={root}/binary.jsonl", "--out={new}", "--target={target}"],
        "binary.jsonl: cannot be read",
    ),
    (
        "generate",
        ["--prompts={root}/prompts.jsonl", "--out={new}", "--target={root}"],
        "config.json",
    ),
    (
        "generate",
        ["--prompts={root}/prompts.jsonl", "--out={new}", "--target={root}/tokenless"],
        "tokenless has no tokenizer (tokenizer.json)",
    ),
    (
        "generate",
        ["--prompts={root}/prompts.jsonl", "--out={root}/no/where", "--target={target}"],
        "folder that exists",
    ),
    (
        "generate",
        ["--prompts={root}/prompts.jsonl", "--out={new}", "--exclude", "{data}"],
        "has neither `prompt` nor `turns`",
    ),
    (
        "generate",
        ["--prompts={root}/prompts.jsonl", "--out={new}", "--cap=0"],
        "argument --cap: 0: must be at least 1",
    ),
    ("generate", ["--prompt={root}/prompts.jsonl", "--out={new}"], "required: --prompts"),
    ("capture", [*CAPTURE, "--data={root}/cut.jsonl.gz"], "cut.jsonl.gz: cannot be read"),
    ("capture", [*CAPTURE, "--data={root}/plain.jsonl.gz"], "plain.jsonl.gz: cannot be read"),
    ("capture", [*CAPTURE, "--data={root}/empty.jsonl"], "empty.jsonl: no samples"),
    (
        "capture",
        [*CAPTURE, "--data={root}/strings.jsonl"],
        "line 1: prompt_ids and output_ids must be lists",
    ),
    ("capture", [*CAPTURE, "--data={root}/large.jsonl"], "has id 40; the target has 40"),
    ("capture", [*CAPTURE, "--data={root}/long.jsonl"], "405 tokens; the target takes 128"),
    ("capture", [*CAPTURE, "--data={root}"], "cannot be read (Is a directory)"),
    ("capture", [*CAPTURE, "--taps", "0", "3"], "taps = 0 3: must be distinct layers in 0..2"),
    ("capture", [*CAPTURE, "--taps", "-1"], "--taps"),
    ("capture", [*CAPTURE, "--holdout=0"], "argument --holdout: 0: must be at least 1"),
    ("capture", [*CAPTURE, "--part=2/2"], "is not i/n"),
    ("capture", [*CAPTURE, "--target={root}/nowhere"], "nowhere: no such folder"),
    (
        "capture",
        [*CAPTURE, "--target={root}/qwen"],
        "qwen: missing tensors: model.layers.0",
    ),
    ("capture", [*CAPTURE, "--target={root}/sizeless"], "hidden_size"),
    ("capture", [*CAPTURE, "--target={root}/unreadable"], "config.json is not JSON"),
    ("capture", [*CAPTURE, "--target={root}/weightless"], "has no *.safetensors"),
    ("capture", [*CAPTURE, "--target={root}/torn"], "torn/model.safetensors is damaged"),
    ("capture", [*CAPTURE, "--out={data}"], "text.jsonl"),
    ("export", [*EXPORT, "--run={root}/nowhere"], "no checkpoint; train first"),
    ("export", [*EXPORT, "--run={root}/cut"], "not a whole checkpoint"),
    ("export", [*EXPORT, "--data={root}/large.jsonl"], "not the text this run was trained on"),
    ("export", [*EXPORT, "--backbone={root}/nowhere"], "nowhere"),
    (
        "validate",
        ["--drafter={root}/nowhere", "--features={features}", "--target={target}"],
        "nowhere",
    ),
    (
        "validate",
        ["--drafter={root}/out_cut", "--features={features}", "--target={target}"],
        "out_cut",
    ),
    (
        "validate",
        ["--drafter={root}/out", "--features={root}/nowhere", "--target={target}"],
        "does not exist",
    ),
    ("card", ["--drafter={root}/nowhere", "--out={new}"], "card.json cannot be read"),
    ("card", ["--drafter={root}/card_list", "--out={new}"], "card.json is not a JSON object"),
    ("card", ["--drafter={root}/out_cut", "--out={new}"], "belongs to other weights"),
    (
        "card",
        ["--drafter={root}/out", "--out={new}", "--accuracy={root}/measured.json"],
        "measured.json is not a JSON object",
    ),
    ("tau", ["--drafter={root}/nowhere", "--data={data}"], "nowhere"),
    ("tau", [*TAU, "model=toy"], "does not fit"),
    ("tau", [*TAU, "model=toys"], "toys"),
    ("tau", [*TAU, "nonsense"], "nonsense"),
    ("tau", [*TAU[:-1], "--methods", "dflush"], "dflush"),
    ("tau", [*TAU[:-1], "--data={root}/strings.jsonl"], "line 1: prompt_ids"),
    (
        "calibrate",
        ["--drafter={root}/out", "--data={data}", "--out={new}"],
        "no confidence head to calibrate",
    ),
    ("calibrate", ["--drafter={root}/nowhere", "--data={data}", "--out={new}"], "nowhere"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    MISTAKES,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line(name, arguments, said, work, tmp_path, capsys):
    new = tmp_path / "new"
    filled = [text.format(**vars(work), new=new) for text in arguments]
    assert said in said_in_one_line(outcome(name, filled, capsys), 2)
    assert not (tmp_path / "new.about.json").exists()
    left = (
        [path for path in new.rglob("*") if path.is_file()]
        if new.is_dir()
        else [new]
        if new.exists()
        else []
    )
    assert not [
        path.name for path in left if path.suffix in (".safetensors", ".md", ".jsonl", ".part")
    ]


LIMIT = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
sys.argv[1:] = {argv!r}
runpy.run_module("dartree_exp.training.{name}", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["capture", "export"])
def test_a_full_disk_is_one_line(name, work, tmp_path):
    """A limit on the size of files stands in for the disk: the system refuses the same write, by
    another number.
    """
    arguments = {"capture": CAPTURE, "export": EXPORT}[name]
    filled = [text.format(**vars(work), new=tmp_path / "new") for text in arguments]
    code = LIMIT.format(argv=filled, name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "File too large" in said_in_one_line((done.returncode, done.stderr), 1)
    assert not list((tmp_path / "new").glob("*.safetensors")) and not list(
        (tmp_path / "new").glob("*.part")
    )
