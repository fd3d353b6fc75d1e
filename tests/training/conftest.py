"""A tiny Llama target with generated text and captured features: everything the trainer needs, in a
second.
"""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from training_support import CAPTURED
from transformers import LlamaConfig, LlamaForCausalLM

from dartree_exp.training.capture import main as capture
from dartree_exp.training.finals import main as finals
from dartree_exp.training.target import open_target
from tiny_folder import write_tokenizer

VOCAB = 40


def tiny_target(folder: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=1, eos_token_id=[1, 2],
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2)
    folder.mkdir()
    state = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    values = {**config.to_dict(), "rope_theta": config.rope_parameters["rope_theta"]}
    values["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(values))
    write_tokenizer(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> SimpleNamespace:
    """Paths `target`, `data`, `features`; `opened`, the target. The text counts upwards (mod 30)
    from a random start: easy to learn.
    """
    root = tmp_path_factory.mktemp("tiny")
    tiny_target(root / "target")
    rng = random.Random(0)
    with (root / "text.jsonl").open("w") as out:
        for i in range(40):
            first = rng.randrange(30)
            ids = [4 + (first + k) % 30 for k in range(30)]
            row = {
                "id": f"s{i}",
                "domain": ("math", "code")[i % 2],
                "prompt_ids": [1, 3, i % 4, *ids[:2]],
                "output_ids": ids[2:],
            }
            out.write(json.dumps(row) + "\n")
    options = ["--target", str(root / "target"), *CAPTURED]
    assert (
        capture(["--data", str(root / "text.jsonl"), "--out", str(root / "features"), *options])
        == 0
    )
    return SimpleNamespace(
        target=root / "target",
        data=root / "text.jsonl",
        features=root / "features",
        opened=open_target(str(root / "target")),
    )


@pytest.fixture(scope="session")
def taught(tiny, tmp_path_factory):
    """The tiny target's features with final hidden states."""
    features = tmp_path_factory.mktemp("taught") / "features"
    shutil.copytree(tiny.features, features)
    assert finals(["--features", str(features), "--target", str(tiny.target)]) == 0
    tiny = type(tiny)(**vars(tiny))
    tiny.features = features
    return tiny
