"""When an answer ends: EOS ids, stop ids, stop strings, the cap, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StopRule:
    """The stop rule of a prompt, shared by both arms.

    The token that ends the answer or completes a stop string is kept, so `text == decode(ids)`. If
    several reasons apply to one token, the order is eos, stop_id, stop_string, length.

    Args:
        decode: ids -> text, needed only with stop strings.
    """

    max_new_tokens: int
    eos_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    decode: Callable[[Sequence[int]], str] | None = None

    def __post_init__(self) -> None:
        if self.stop_strings and self.decode is None:
            raise ValueError("decoding.stop_strings needs a tokenizer to decode with")
        if "" in self.stop_strings:
            raise ValueError(
                "decoding.stop_strings: the empty string would stop at once; name at least one "
                "character"
            )

    def reason(self, ids: Sequence[int]) -> str | None:
        """Why `ids` ends with its last token, or None."""
        if ids[-1] in self.eos_ids:
            return "eos"
        if ids[-1] in self.stop_ids:
            return "stop_id"
        if self.stop_strings and self._completes_string(ids):
            return "stop_string"
        return "length" if len(ids) >= self.max_new_tokens else None

    def _completes_string(self, ids: Sequence[int]) -> bool:
        assert self.decode is not None
        # Every token adds at least one byte, so this tail contains any string that the last token
        # completes.
        tail = ids[-(max(len(s.encode()) for s in self.stop_strings) + 8) :]
        text, before = self.decode(tail), self.decode(tail[:-1])
        return any(text.count(s) > before.count(s) for s in self.stop_strings)


@dataclass
class Answer:
    """The ids emitted so far under a stop rule."""

    rule: StopRule
    ids: list[int] = field(default_factory=list)
    finish: str | None = None

    def __post_init__(self) -> None:
        if self.rule.max_new_tokens <= 0:
            self.finish = "length"

    def push(self, tokens: Sequence[int]) -> int:
        """Append tokens until one ends the answer; returns how many were appended."""
        emitted = 0
        for token in tokens:
            if self.finish is not None:
                break
            self.ids.append(token)
            self.finish = self.rule.reason(self.ids)
            emitted += 1
        return emitted
