"""Limits for a model's chat template, which is a program that may be damaged or never end.

transformers renders it in jinja2's immutable sandbox, which blocks files and attributes and limits
one `range` to 100,000 items, but not nested loops or arithmetic. These are limited here, without
threads or signals. This stops accidents, not attacks: a malicious template can still fill the
memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dartree_exp.errors import UserError

MAX_STEPS = 200_000
"""Limit of executed template lines in one rendering; a long conversation needs some thousand."""
MAX_SECONDS = 10.0
"""Limit of CPU time of one rendering, for slow steps."""
MAX_NUMBER = 100_000
"""Largest number in a template: a larger factor or width could fill the memory in one step."""
_TEMPLATE_FILE = "<template>"  # jinja2's name for code compiled from a string


class TemplateError(UserError):
    """A chat template that cannot be read, that fails, or that does not end."""


def check_template(template: str) -> None:
    """Raise TemplateError for a power or a large number, which could take hours or all memory."""
    from jinja2 import Environment
    from jinja2.exceptions import TemplateSyntaxError

    try:
        tokens = [(kind, text) for _, kind, text in Environment().lex(template)]
    except TemplateSyntaxError as error:
        raise TemplateError(f"cannot be read: {error}") from error
    for kind, text in tokens:
        if (kind, text) == ("operator", "**"):
            raise TemplateError(
                "uses the power operator **, which is not allowed: one such step may never end"
            )
        if kind == "integer" and (len(text) > 12 or int(text.replace("_", ""), 0) > MAX_NUMBER):
            raise TemplateError(
                f"has the number {text[:12]}, which is not allowed: at most {MAX_NUMBER}"
            )


@contextmanager
def bounded() -> Iterator[None]:
    """Raise TemplateError in a rendering after MAX_STEPS lines of template code or MAX_SECONDS of
    CPU time.

    Uses `sys.settrace`, which works in every thread; signals reach only the main thread.
    """
    steps, end = 0, time.thread_time() + MAX_SECONDS

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != _TEMPLATE_FILE:
            return None
        steps += 1
        if steps > MAX_STEPS:
            raise TemplateError(f"does not end: stopped after {MAX_STEPS} steps")
        if time.thread_time() > end:
            raise TemplateError(f"does not end: stopped after {MAX_SECONDS:g} s")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
