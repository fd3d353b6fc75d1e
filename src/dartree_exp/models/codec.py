"""Text <-> token ids, for a real tokenizer and for the toy target."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Protocol

from dartree_exp.errors import UserError

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""


class Codec(Protocol):
    def encode_chat(self, messages: Sequence[Message], enable_thinking: bool = False) -> list[int]:
        """Ids of the rendered conversation, ready for the assistant's answer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens are left out."""


class ChatCodec:
    """A transformers tokenizer with a chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.library = tokenizer
        self._template = tokenizer.chat_template or ""

    def encode_chat(self, messages: Sequence[Message], enable_thinking: bool = False) -> list[int]:
        """Render the template, then encode plainly (no further special tokens), as the papers do.

        Raises UserError without a template, and for enable_thinking where the template has no such switch.
        """
        if not self._template:
            raise UserError("this tokenizer has no chat template; the target must be an instruct model")
        switches = {"enable_thinking": enable_thinking} if "enable_thinking" in self._template else {}
        if enable_thinking and not switches:
            raise UserError("decoding.enable_thinking=true: this model's chat template has no thinking mode")
        text = self.library.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **switches)
        return list(self.library.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return self.library.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


class ToyCodec:
    """Words hashed into a tiny vocabulary; ids written as syllables. Ids below `reserved` are special."""

    _CONSONANTS = "bdfgklmnprstvz"
    _VOWELS = "aeiou"

    def __init__(self, vocab_size: int, reserved: int) -> None:
        if not 0 <= reserved < vocab_size:
            raise ValueError(f"reserved must be in [0, {vocab_size}), got {reserved}")
        self._reserved = reserved
        self._ordinary = vocab_size - reserved

    def encode_chat(self, messages: Sequence[Message], enable_thinking: bool = False) -> list[int]:
        if enable_thinking:
            raise UserError("decoding.enable_thinking=true: the toy target has no thinking mode")
        ids = []
        for message in messages:
            for word in [message["role"], *message["content"].split()]:
                ids.append(self._reserved + zlib.crc32(word.encode()) % self._ordinary)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._syllables(i - self._reserved) + " " for i in ids if i >= self._reserved)

    def _syllables(self, number: int) -> str:
        text = ""
        while True:
            number, place = divmod(number, len(self._CONSONANTS) * len(self._VOWELS))
            consonant, vowel = divmod(place, len(self._VOWELS))
            text += self._CONSONANTS[consonant] + self._VOWELS[vowel]
            if not number:
                return text
            number -= 1
