"""The toy target as a folder with a tokenizer: what the training commands and `model.path` read."""

from __future__ import annotations

import json
from pathlib import Path

from dartree_exp.models.toy import toy_target

WORDS = (
    *(
        "count",
        "the",
        "words",
        "of",
        "this",
        "line",
        "and",
        "write",
        "a",
        "function",
        "that",
        "adds",
        "two",
        "numbers",
    ),
    *("name", "three", "colours", "please"),
)
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt "
    "%}<answer>{% endif %}"
)


def write_target(folder: Path) -> Path:
    """30 layers, so that the embedded target's taps are there; hidden 32, 64 ids."""
    from safetensors.torch import save_file

    target = toy_target(layers=30, tied=True, vocab_size=64)
    folder.mkdir()
    state = {
        k: v.contiguous() for k, v in target._model.state_dict().items() if k != "lm_head.weight"
    }
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = target._model.config
    values = {**config.to_dict(), "rope_theta": config.rope_parameters["rope_theta"]}
    (folder / "config.json").write_text(
        json.dumps({**values, "architectures": ["LlamaForCausalLM"]})
    )
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of 26 words with a chat template."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<end>", "<stop>", "<mask>", "<answer>", "<unk>"]
    words = Tokenizer(
        WordLevel({word: i for i, word in enumerate([*special, *WORDS])}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<end>", pad_token="<pad>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def write_prompts(path: Path, count: int) -> None:
    """So many prompts of each domain, all different."""
    rows = [
        {
            "id": f"{domain}-{i}",
            "domain": domain,
            "prompt": " ".join([*WORDS[i % 5 : i % 5 + 3 + i // 5], WORDS[k]]),
        }
        for k, domain in enumerate(("math", "code", "chat"))
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
