"""The interface of a target's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""


class Codec(Protocol):
    def encode_chat(self, messages: Sequence[Message], enable_thinking: bool = False) -> list[int]:
        """Ids of the rendered conversation, ready for the assistant's answer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens are left out."""

    @property
    def special_ids(self) -> dict[str, int]:
        """{text: id} of the tokens that `decode` leaves out."""
