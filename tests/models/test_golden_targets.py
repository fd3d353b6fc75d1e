"""Reference greedy runs of the tiny golden targets, and the embedded model's recorded
continuations.
"""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dartree_exp.engines.target import Target
from dartree_exp.models.codec import ToyCodec
from dartree_exp.models.registry import check_folder, load_target, load_weights
from golden_support import MODEL, carried, golden_cases

NAME = "smollm2_135m"
ENGINE = SimpleNamespace(device="cpu", dtype="fp32", threads=None, attention="auto", name=None)


def greedy(target, prompt, count):
    cache = target.new_cache(len(prompt) + count)
    ids = [int(target.prefill(prompt, cache).logits[-1].argmax())]
    while len(ids) < count:
        ids.append(int(target.step(ids[-1], cache).argmax()))
    return ids


def golden_target(folder):
    model = load_weights(folder, check_folder(folder)[0], torch.float32)
    vocab = model.config.vocab_size
    return Target(
        model, name=folder.name, tokenizer=ToyCodec(vocab, 0), eos_ids=(), weights_sha256=str
    )


@pytest.mark.parametrize("case", golden_cases("end_to_end"))
def test_golden_plain_decoding(case):
    record = case.spec
    target = golden_target(case.folders["target"])
    runs = [run for run in record["runs"] if run["method"] == "ar"]
    assert runs
    for run in runs:
        ids = greedy(target, record["prompts"][run["prompt_index"]], run["max_new_tokens"])
        stops = run["stop_token_ids"] or []
        ends = [i for i, token in enumerate(ids) if token in stops]
        assert (ids[: ends[0] + 1] if ends else ids) == run["new_ids"]


def test_a_tied_target_equals_its_untied_copy(tmp_path):
    """The weights of a golden target without its output table, and with a copy of the input table
    instead.
    """
    source = carried("end_to_end")[0].folders["target"]
    config = json.loads((source / "config.json").read_text())
    weights = load_file(source / "model.safetensors")

    def write(name, tie):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tie}))
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return golden_target(folder)

    weights.pop("lm_head.weight", None)
    tied = write("tied", True)
    assert tied.lm_head_weight is tied.embed_weight
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    untied = write("untied", False)
    assert untied.lm_head_weight is not untied.embed_weight
    prompt = [3, 14, 15, 9]
    first = tied.prefill(prompt, tied.new_cache(8)).logits
    torch.testing.assert_close(first, untied.prefill(prompt, untied.new_cache(8)).logits)


@pytest.fixture(scope="module")
def smollm2(embedded_model):
    return load_target(SimpleNamespace(name=NAME, path=None), ENGINE)


@pytest.fixture(scope="module", params=golden_cases(MODEL, lambda case: case.name == NAME))
def recorded(request):
    return request.param.spec


@pytest.mark.real_model
def test_embedded_tokenizer(smollm2, recorded):
    for text in recorded["tokenizer"]:
        assert (
            smollm2.tokenizer.library.encode(text["text"], add_special_tokens=False) == text["ids"]
        )
    for run in recorded["greedy"]:
        message = {"role": "user", "content": run["prompt"]}
        assert smollm2.tokenizer.encode_chat([message]) == run["prompt_ids"]


@pytest.mark.real_model
def test_embedded_first_logits(smollm2, recorded):
    for run in recorded["greedy"]:
        cache = smollm2.new_cache(len(run["prompt_ids"]))
        top = smollm2.prefill(run["prompt_ids"], cache).logits[-1].topk(5)
        assert top.indices.tolist() == run["first_top5"]["ids"]
        assert torch.allclose(
            top.values, torch.tensor(run["first_top5"]["logits"]), rtol=0, atol=1e-3
        )


@pytest.mark.real_model
def test_embedded_greedy_continuations(smollm2, recorded):
    """Each recorded token is the argmax after its predecessors, so all are the greedy continuation;
    one pass.
    """
    assert smollm2.eos_ids == (2,)
    for run in recorded["greedy"]:
        prompt, new = run["prompt_ids"], run["new_ids"]
        n = len(new) - 1
        cache = smollm2.new_cache(len(prompt) + n)
        first = int(smollm2.prefill(prompt, cache).logits[-1].argmax())
        mask = smollm2.mask(torch.arange(-1, n - 1), len(prompt))
        positions = torch.arange(len(prompt), len(prompt) + n)[None]
        logits = smollm2.verify(torch.tensor(new[:-1]), positions, mask, cache).logits
        assert [first, *logits.argmax(-1).tolist()] == new
        assert "<|im_end|>" not in smollm2.tokenizer.decode(new)


@pytest.mark.real_model
def test_embedded_step_loop(smollm2, recorded):
    run = recorded["greedy"][0]
    assert greedy(smollm2, run["prompt_ids"], len(run["new_ids"])) == run["new_ids"]
