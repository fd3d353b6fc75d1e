"""Text <-> token ids, for a real tokenizer and for the toy target."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dartree_exp.engines.codec import Message
from dartree_exp.errors import UserError
from dartree_exp.models.chat_template import TemplateError, bounded, check_template


class ChatCodec:
    """A transformers tokenizer with a chat template.

    source: its folder, for messages. rows: of the target's embedding, an upper bound for ids.
    """

    def __init__(self, tokenizer: Any, source: str, rows: int) -> None:
        self.library = tokenizer
        self._source, self._rows = source, rows
        template = tokenizer.chat_template
        self._template = template.get("default") if isinstance(template, dict) else template
        if self._template is not None and not isinstance(self._template, str):
            raise UserError(
                f"{source}: the chat template is a {type(self._template).__name__}, not a string"
            )
        if self._template:
            with self._named():
                check_template(self._template)

    def encode_chat(self, messages: Sequence[Message], enable_thinking: bool = False) -> list[int]:
        """Render the template, then encode plainly (no further special tokens), as the papers do.

        Raises UserError if there is no template, if it fails, does not end, renders nothing or
        gives an id without an embedding row, and for enable_thinking if the template has no such
        variable.
        """
        if not self._template:
            raise UserError(
                f"{self._source} has no chat template; the target must be an instruct model"
            )
        switches = (
            {"enable_thinking": enable_thinking} if "enable_thinking" in self._template else {}
        )
        if enable_thinking and not switches:
            raise UserError(
                "decoding.enable_thinking=true: this model's chat template has no thinking mode"
            )
        with self._named(), bounded():
            text = self.library.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, **switches
            )
        try:
            ids = list(self.library.encode(text, add_special_tokens=False))
        except (UnicodeError, TypeError) as error:
            raise UserError(
                "the prompt has half a surrogate pair, which no tokenizer can read"
            ) from error
        except Exception as error:  # the tokenizers library raises no narrower class
            raise UserError(
                f"{self._source}: the tokenizer cannot read the rendered prompt: {error}"
            ) from error
        if not ids:
            raise UserError(f"{self._source}: the chat template renders no token")
        if (largest := max(ids)) >= self._rows:
            raise UserError(
                f"{self._source}: the chat template gives "
                f"{self.library.convert_ids_to_tokens(largest)!r}, id {largest}, "
                f"but the target has only {self._rows} embedding rows"
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.library.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    @property
    def eos_id(self) -> int | None:
        """The tokenizer's end id. Raises UserError if the target has no embedding row for it."""
        own = self.library.eos_token_id
        if own is not None and own >= self._rows:
            raise UserError(
                f"{self._source}: the tokenizer's eos_token {self.library.eos_token!r} has id "
                f"{own}, but the target has only {self._rows} embedding rows"
            )
        return own

    @property
    def special_ids(self) -> dict[str, int]:
        return {
            token.content: number
            for number, token in self.library.added_tokens_decoder.items()
            if token.special
        }

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn every error of a template into one line with the folder."""
        try:
            yield
        except TemplateError as error:
            raise UserError(f"{self._source}: the chat template {error}") from error
        except Exception as error:  # a template may raise anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self._source}: the chat template fails: {reason}") from error


class ToyCodec:
    """Hashes words into a tiny vocabulary and decodes ids as syllables. Ids below `reserved` are
    special.
    """

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
        return "".join(
            self._syllables(i - self._reserved) + " " for i in ids if i >= self._reserved
        )

    special_ids: dict[str, int] = {}  # noqa: RUF012  # the special ids have no text

    def _syllables(self, number: int) -> str:
        text = ""
        while True:
            number, place = divmod(number, len(self._CONSONANTS) * len(self._VOWELS))
            consonant, vowel = divmod(place, len(self._VOWELS))
            text += self._CONSONANTS[consonant] + self._VOWELS[vowel]
            if not number:
                return text
            number -= 1
