"""Targets that load, targets that are refused, and the messages."""

import hashlib
import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dartree_exp.engines.cache import UnsupportedTargetError, check_rewindable
from dartree_exp.errors import UserError
from dartree_exp.models import registry
from dartree_exp.models.toy import toy_target

CPU = torch.device("cpu")
ENGINE = SimpleNamespace(device="cpu", dtype="fp32", threads=None, attention="auto", name=None)


def load(path):
    return registry.load_target(SimpleNamespace(name="mine", path=str(path)), ENGINE)


def edit_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_local_folder_loads(folder):
    target = load(folder)
    assert (target.name, target.dtype, target.device, target.eos_ids) == (
        "mine",
        torch.float32,
        CPU,
        (1, 2),
    )
    assert (target.vocab_size, target.hidden_size, target.num_layers, target.max_positions) == (
        64,
        32,
        3,
        2048,
    )
    assert target.embed_weight.shape == target.lm_head_weight.shape == (64, 32)
    assert not target.embed_weight.requires_grad
    ids = target.tokenizer.encode_chat([{"role": "user", "content": "hello"}])
    assert ids == [2, 3, 4]
    assert target.tokenizer.decode([3, 1]) == "hello"
    reference = toy_target("llama", seed=3, engine=None)
    same = reference.prefill(ids, reference.new_cache(3)).logits
    assert torch.equal(target.prefill(ids, target.new_cache(3)).logits, same)


def test_digest_of_one_file_is_the_files_and_changes_with_it(folder):
    weights = folder / "model.safetensors"
    assert load(folder).weights_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    (folder / "other.safetensors").write_bytes(b"x")
    assert registry.weights_digest(folder) != hashlib.sha256(weights.read_bytes()).hexdigest()


def test_thinking_is_refused_if_the_template_ignores_it(folder):
    codec = load(folder).tokenizer
    with pytest.raises(UserError, match="no thinking mode"):
        codec.encode_chat([{"role": "user", "content": "hello"}], enable_thinking=True)


def test_thinking_reaches_a_template_that_knows_it(folder):
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + "{% if enable_thinking %} hello{% endif %}")
    codec = load(folder).tokenizer
    messages = [{"role": "user", "content": "hello"}]
    assert codec.encode_chat(messages, enable_thinking=True) == [2, 3, 4, 3]
    assert codec.encode_chat(messages, enable_thinking=False) == [2, 3, 4]


def test_a_missing_chat_template_is_an_error(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        load(folder).tokenizer.encode_chat([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", r"no \*\.safetensors"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_a_missing_file_is_named(folder, remove, message):
    (folder / remove).unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=message):
        load(folder)


def test_pickled_weights_are_not_read(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="other weight formats are not supported"):
        load(folder)


def test_a_truncated_weight_file_is_an_error(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"weight file .*model\.safetensors is damaged"):
        load(folder)


@pytest.mark.parametrize("problem", ["missing", "unexpected"])
def test_incomplete_weights_name_the_tensor(folder, problem):
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = "model.layers.1.mlp.up_proj.weight"
    if problem == "missing":
        del weights[name]
    else:
        name = "model.layers.7.extra.weight"
        weights[name] = torch.zeros(2)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=rf"{problem} tensors: {name}"):
        load(folder)


def test_a_tensor_of_another_shape_is_refused(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"mismatched tensors: .*model\.norm\.weight"):
        load(folder)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]},
            "recurrent state",
        ),
        ({"model_type": "mamba"}, "'mamba' is not supported; supported: llama, qwen3"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rotary scaling"),
        ({"rope_scaling": {"type": "longrope"}, "rope_parameters": None}, "rotary scaling"),
    ],
)
def test_targets_that_cannot_be_rewound_are_refused_before_weights_are_read(folder, fields, reason):
    (folder / "model.safetensors").write_bytes(b"never read")
    edit_config(folder, **fields)
    with pytest.raises(UnsupportedTargetError, match=reason):
        load(folder)


def test_ordinary_configurations_pass():
    check_rewindable(SimpleNamespace(model_type="llama"))
    check_rewindable(SimpleNamespace(model_type="llama", rope_scaling={"rope_type": "llama3"}))
    check_rewindable(
        SimpleNamespace(model_type="qwen3", layer_types=["full_attention"] * 2, rope_scaling=None)
    )


def windowed(window):
    return toy_target(
        "qwen3",
        torch.float64,
        use_sliding_window=True,
        sliding_window=window,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
    )


def test_a_window_smaller_than_the_cache_is_refused():
    with pytest.raises(UnsupportedTargetError, match="sliding window of 8 rows, 30 are needed"):
        windowed(8).new_cache(30)


def test_a_window_that_is_never_reached_equals_full_attention():
    target, full = windowed(32), toy_target("qwen3", torch.float64)
    prompt = list(range(4, 34))
    cache, reference = target.new_cache(32), full.new_cache(32)
    assert torch.allclose(
        target.prefill(prompt, cache).logits, full.prefill(prompt, reference).logits, atol=1e-10
    )
    assert torch.allclose(target.step(9, cache), full.step(9, reference), atol=1e-10)


def test_names_that_cannot_be_found():
    with pytest.raises(UserError, match="not an embedded target"):
        registry.load_target(SimpleNamespace(name="gpt9", path=None), ENGINE)
    with pytest.raises(UserError, match="no such folder, and not a hub name"):
        load("/no/such/folder")
    with pytest.raises(UserError, match="not available from the hub"):
        load("nobody/no-such-model")


def test_the_toy_target_by_config():
    model = SimpleNamespace(name="toy", path=None, family="qwen3", seed=2)
    target = registry.load_target(
        model,
        SimpleNamespace(device="cpu", dtype="fp64", threads=None, attention="auto", name=None),
    )
    assert (target.name, target.dtype) == ("toy-qwen3", torch.float64)
    assert target.weights_sha256 == toy_target("qwen3", torch.float64, 2).weights_sha256


def test_threads_are_set():
    before = torch.get_num_threads()
    try:
        model = SimpleNamespace(name="toy", path=None, family=None, seed=0)
        registry.load_target(
            model,
            SimpleNamespace(
                device="cpu", dtype="fp32", threads=before + 1, attention="auto", name=None
            ),
        )
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_dtype_auto_follows_the_hardware(monkeypatch):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"amx_bf16": False, "avx512_bf16": True}
    )
    assert registry.resolve_dtype("auto", CPU) is torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert registry.resolve_dtype("auto", CPU) is torch.float32
    assert registry.resolve_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert registry.resolve_dtype("bf16", CPU) is torch.bfloat16


def test_cuda_without_a_gpu_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"engine\.device=cuda: torch sees no GPU"):
        registry.resolve_device("cuda")
    assert registry.resolve_device("auto") == CPU
