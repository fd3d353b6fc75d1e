"""A small model folder as a user would have it."""

import pytest

from dartree_exp.models.toy import toy_target


@pytest.fixture
def folder(tmp_path):
    """A saved toy Llama with a word-level tokenizer and a chat template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    target = toy_target("llama", seed=3)
    target._model.save_pretrained(tmp_path)
    words = Tokenizer(
        WordLevel(
            {"<unk>": 0, "<end>": 1, "user": 2, "hello": 3, "assistant": 4}, unk_token="<unk>"
        )
    )
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<end>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}assistant{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path)
    return tmp_path
