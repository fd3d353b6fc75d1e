"""The tokenizer of the embedded target, rebuilt from a GGUF file's metadata.

Source: the `tokenizer.ggml.*` keys of the file. transformers' GGUF reader ignores the rule of
`pre = smollm` that every digit is a token, which changes the ids of most texts with numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTROL_TOKEN = 3  # GGUF token type of ids that must never be split, e.g. <|im_end|>


def build_tokenizer(meta: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits, special ids and chat template from GGUF metadata.

    Args:
        meta: flat GGUF metadata, see `gguf.read_metadata`.

    Raises:
        ValueError: another kind of tokenizer; guessing would silently give wrong ids.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    kind = (meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer model/pre {kind} is not supported; must be ('gpt2', 'smollm')")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ", 1)) for m in meta["tokenizer.ggml.merges"]]
    core = Tokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, fuse_unk=False)
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    specials = [
        t
        for t, kind in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
        if kind == CONTROL_TOKEN
    ]
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=tokens[meta["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[meta["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[meta["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[meta["tokenizer.ggml.padding_token_id"]],
        chat_template=meta["tokenizer.chat_template"],
        model_max_length=meta["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
