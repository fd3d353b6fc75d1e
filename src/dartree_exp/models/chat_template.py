"""Bounds on a model's chat template: it is a program, and one from a folder may be damaged or never
end.

transformers renders it in jinja2's immutable sandbox, which keeps it from files and attributes and
limits one `range` to 100,000 items, but neither nested loops nor arithmetic. Both are bounded here
without threads or signals. This stops accidents; one call that is made to fill the memory can still
be written.
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
"""Lines of a template run in one rendering; a long conversation takes some thousand."""
MAX_SECONDS = 10.0
"""Processor time of one rendering, for steps that are slow themselves."""
MAX_NUMBER = 100_000
"""Largest number that a template may hold: a factor or a width beyond it fills the memory in one
step.
"""
_TEMPLATE_FILE = "<template>"  # jinja2's name for code compiled from a string


class TemplateError(UserError):
    """A chat template that cannot be read, that fails, or that does not end."""


def check_template(template: str) -> None:
    """Raise TemplateError for what one step could spend hours or all memory on: a power, a large
    number.
    """
    from jinja2 import Environment
    from jinja2.exceptions import TemplateSyntaxError

    try:
        tokens = [(kind, text) for _, kind, text in Environment().lex(template)]
    except TemplateSyntaxError as error:
        raise TemplateError(f"cannot be read: {error}") from error
    for kind, text in tokens:
        if (kind, text) == ("operator", "**"):
            raise TemplateError(
                "uses the power operator **, which is refused: one such step need not end"
            )
        if kind == "integer" and (len(text) > 12 or int(text.replace("_", ""), 0) > MAX_NUMBER):
            raise TemplateError(
                f"holds the number {text[:12]}, which is refused: none may be above {MAX_NUMBER}"
            )


@contextmanager
def bounded() -> Iterator[None]:
    """Rendering inside stops with TemplateError after MAX_STEPS lines of template code or
    MAX_SECONDS of processor time.

    Counted with `sys.settrace`: the same on every machine and thread, while signals reach the main
    thread alone.
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
