"""Text that others wrote (prompts, answers, ids, messages of records), made safe to print."""

from __future__ import annotations

import re

# Control characters drive a terminal; bidirectional marks and line separators reorder what is read;
# half a surrogate pair cannot be encoded at all.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with such characters written out, `\x1b` or `\u202e`; line ends and tabs stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_line(text: object) -> str:
    r"""`printable` of `str(text)`, line ends written out as well."""
    return printable(str(text)).replace("\n", r"\n")


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 0:02:10."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
