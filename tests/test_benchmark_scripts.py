"""The measurements in benchmarks/ run on the toy target; no time is asserted."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from dartree_exp.models.toy import toy_target

FOLDER = Path(__file__).parents[1] / "benchmarks"
TOY = ["model=toy", "--dtype", "fp32", "--threads", "1"]
ALL_PEERS = ["generate", "lookup", "assisted", "ar", "method", "adapter"]


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Runs a measurement on the toy target and returns its record."""
    monkeypatch.syspath_prepend(FOLDER)
    threads = torch.get_num_threads()

    def run(name, *words):
        file = tmp_path / f"{name}.json"
        import_module(name).main([*TOY, *words, "--json", str(file)])
        return json.loads(file.read_text())

    yield run
    torch.set_num_threads(threads)


def test_every_peer_decodes_the_same_ids(measure, capsys):
    words = ["--limit", "2", "--tokens", "12", "--repeats", "2", "--early-exit", "1"]
    record = measure("peers", *words, "--adapter", str(FOLDER / "adapters/example.py"))
    assert list(record["peers"]) == ALL_PEERS
    for peer in record["peers"].values():
        assert peer["differences"] == [] and peer["same_as_ar"] == 2
        assert peer["tokens"] == record["peers"]["generate"]["tokens"]
        assert [len(times) for times in peer["seconds"]] == [2, 2]
    assert max(record["peers"]["ar"]["tokens"]) == 12
    assert record["peers"]["generate"]["ratio"]["all"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert record["environment"]["threads"] == 1
    assert "2 of 2" in capsys.readouterr().out


def test_a_peer_that_differs_is_reported(measure, tmp_path, capsys):
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "their_loop.py").write_text("OFFSET = 1\n")
    adapter = tmp_path / "wrong.py"
    adapter.write_text(
        "from their_loop import OFFSET\n"
        "def decode(model, tokenizer, prompt_ids, max_new_tokens):\n"
        "    return [int(prompt_ids[-1]) + OFFSET] * max_new_tokens\n"
    )
    record = measure(
        *("peers", "--peers", "ar,adapter", "--limit", "1", "--tokens", "4", "--repeats", "1"),
        *("--adapter", str(adapter), "--path", str(tmp_path / "repository")),
    )
    (difference,) = record["peers"]["adapter"]["differences"]
    assert difference["token"] == 0 and difference["gap"] > 0
    assert f"wrong: {difference['prompt']} differs at token 0" in capsys.readouterr().out


def test_above_temperature_0_ours_draw_the_same_ids(measure):
    record = measure("peers", "--temperature", "1", "--limit", "2", "--tokens", "8")
    assert list(record["peers"]) == ["ar", "method"]
    assert record["peers"]["method"]["differences"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--peers", "vllm"], "--peers vllm: not one of generate, lookup"),
        (["--peers", "adapter"], "--adapter FILE.py is missing"),
        (["--temperature", "1", "--peers", "lookup"], "peer 'lookup' draws other noise"),
        (["--adapter", "gone.py"], "--adapter gone.py: no such file"),
        (["--adapter", __file__, "--path", "gone"], "--path gone: no such folder"),
        (["--adapter", __file__], "has no function decode"),
        (["--peers", "assisted", "--early-exit", "3"], "--early-exit 3: allowed: 1..2"),
        (["--peers", "assisted", "--assistant", "gone"], "--assistant gone: no such folder"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["tree.budgt=3"], "tree.budgt"),
    ],
)
def test_a_mistake_is_one_line(measure, monkeypatch, capsys, words, message):
    peers, measuring = import_module("peers"), import_module("measuring")
    monkeypatch.setattr(sys, "argv", ["peers.py", *TOY, *words])
    assert measuring.command("peers", peers.main) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_forward_measures_every_engine_attention_and_row_count(measure):
    record = measure("forward", "--rows", "1,5", "--contexts", "9", "--repeats", "2")
    found = {(r["engine"], r["attention"], r["context"], r["rows"]) for r in record["forward"]}
    assert found == {
        (engine, attention, 9, rows)
        for engine in ("eager", "packed")
        for attention in ("library", "row_invariant")
        for rows in (1, 5)
    }
    for row in record["forward"]:
        assert row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
        assert row["products_ms"]["value"] > 0


def test_the_products_are_those_of_all_weights(measure, monkeypatch):
    forward = import_module("forward")
    for engine in ("eager", "packed"):
        target = toy_target(layers=2, engine=engine)
        rows = [layer.of(torch.ones(1, layer.columns)) for layer in forward.linear_layers(target)]
        # 4 query and 2 + 2 key-value heads of 8, output, gate, up and down in each layer; the head
        assert sum(row.shape[-1] for row in rows) == 2 * (64 + 32 + 64 + 64 + 32) + 64


def test_scaling_decodes_real_rounds_at_every_value(measure):
    record = measure(
        *("scaling", "--limit", "2", "--tokens", "6"),
        *("--axis", "tree.budget=2,9,auto", "--axis", "context=60,120"),
    )
    small, large, auto, near, far = record["scaling"]
    assert (small["nodes"], large["nodes"]) == (2, 9)
    assert 0 <= auto["nodes"] <= 64  # the machine's costs decide
    assert near["context"] >= 60 and far["context"] >= 120
    assert near["nodes"] == far["nodes"] == 64  # the other axes stay at the default
    for row in record["scaling"]:
        assert row["rounds"] > 0 and set(row["stages_ms"]) == {
            *("draft", "build", "mask", "verify", "commit", "other")
        }
