"""Makes external text (prompts, answers, ids, messages in records) safe to print."""

from __future__ import annotations

import re

# Control characters, bidirectional marks and line separators, which change the terminal or the
# order of text; half a surrogate pair, which cannot be encoded.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with these characters escaped (`\x1b`, `\u202e`); line ends and tabs are kept."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_line(text: object) -> str:
    r"""`printable` of `str(text)`, with line ends escaped too."""
    return printable(str(text)).replace("\n", r"\n")


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 0:02:10."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
