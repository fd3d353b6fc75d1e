"""Mistakes in what a training command is given."""

from __future__ import annotations

from dartree_exp.errors import UserError


class InputError(UserError, ValueError):
    """A file or a value that a training command cannot use; the message names it and says why."""


def first_line(error: BaseException) -> str:
    """An error's message as one line."""
    return " ".join(str(error).split()) or type(error).__name__
