"""Generation by the target: equal to decoding alone, resumable, benchmark prompts kept out."""

import json

import pytest
import torch

from dartree_exp.engines.batched import greedy
from dartree_exp.training.generate import finished, plan
from dartree_exp.training.prompts import TrainingPrompt, load_prompts, without
from dartree_exp.training.tau import first_of_each, survival


def test_batched_greedy_equals_the_library(tiny):
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    prompts = torch.randint(3, 40, (5, 6), generator=torch.Generator().manual_seed(5))
    eos = {
        int(model(prompts[:1]).logits[0, -1].argmax()),
        2,
    }  # One row ends at once, others later or never.
    answers = greedy(tiny.opened, prompts, 40, eos)
    for prompt, answer in zip(prompts, answers, strict=True):
        wanted: list[int] = []
        while len(wanted) < 40 and not (wanted and wanted[-1] in eos):
            ids = torch.cat([prompt, torch.tensor(wanted, dtype=torch.long)])
            with torch.no_grad():
                wanted.append(int(model(ids[None]).logits[0, -1].argmax()))
        assert answer == wanted
    assert min(map(len, answers)) == 1


def test_a_torn_line_is_cut_off(tmp_path):
    out = tmp_path / "text.jsonl"
    assert finished(out) == set()
    out.write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c"')
    assert finished(out) == {"a", "b"}
    assert out.read_text() == '{"id": "a"}\n{"id": "b"}\n'
    out.write_text('{"id": "a"}\nnonsense\n{"id": "c"}\n')
    with pytest.raises(ValueError, match=r"text\.jsonl:2: damaged line"):
        finished(out)
    out.write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match="a line has no 'id'"):
        finished(out)


def test_batches_have_one_length():
    items = [(TrainingPrompt(str(i), "math", "x"), [0] * (3 + i % 2)) for i in range(7)]
    batches = plan(items, 2)
    assert [len(b) for b in batches] == [2, 2, 2, 1]
    assert all(len({len(ids) for _, ids in b}) == 1 for b in batches)


def test_prompts_are_checked(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": "a", "domain": "poetry", "prompt": "x"}) + "\n")
    with pytest.raises(ValueError, match=r"line 1: domain 'poetry'"):
        load_prompts(path)
    path.write_text(json.dumps({"id": "a", "domain": "chat", "prompt": " "}) + "\n")
    with pytest.raises(ValueError, match="line 1: empty"):
        load_prompts(path)


def test_benchmark_prompts_stay_out():
    prompts = [TrainingPrompt("a", "chat", "Hello  there"), TrainingPrompt("b", "chat", "Else")]
    assert [p.id for p in without(prompts, {"hello\nthere"})] == ["b"]


def test_validation_counts():
    assert survival([1, 3, 2, 3], 3) == [0.75, 0.5, 0.0]
    from dartree_exp.training.corpus import Sample

    samples = [Sample(str(i), "ab"[i % 2], [1], [2]) for i in range(6)]
    assert [s.id for s in first_of_each(samples, 2)] == ["0", "1", "2", "3"]


@pytest.mark.real_model
def test_the_command_resumes_and_leaves_benchmark_prompts_out(tmp_path, capsys):
    from dartree_exp.models.fetch import FetchError, ensure
    from dartree_exp.training.corpus import load_samples
    from dartree_exp.training.generate import main

    try:
        ensure("smollm2_135m")
    except FetchError as error:
        pytest.skip(str(error))
    texts = {"a": "What is 2 + 3?", "b": "Name a colour.", "c": "Say hello."}
    rows = [json.dumps({"id": k, "domain": "chat", "prompt": v}) for k, v in texts.items()]
    prompts, banned, out = tmp_path / "p.jsonl", tmp_path / "bench.jsonl", tmp_path / "out.jsonl"
    prompts.write_text("\n".join(rows) + "\n")
    banned.write_text(json.dumps({"id": "z", "domain": "chat", "prompt": "name a  COLOUR."}) + "\n")
    command = [
        "--prompts",
        str(prompts),
        "--out",
        str(out),
        "--exclude",
        str(banned),
        "--cap",
        "5",
        "--batch",
        "1",
    ]
    assert main(command) == 0
    whole = out.read_text()
    assert {s.id for s in load_samples(out)} == {"a", "c"}
    out.write_text(whole.splitlines(keepends=True)[0] + '{"torn')
    assert main(command) == 0
    assert out.read_text() == whole
    assert "1/1 prompts" in capsys.readouterr().out
