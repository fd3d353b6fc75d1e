"""Errors that carry a message for the user: the command line prints the message as one line, without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right; `str(error)` says what and how."""


class ConfigError(UserError):
    """A setting that is unknown, has a wrong type or range, or cannot work with another one."""


class RunError(UserError):
    """A run that finished its work but must not count as done, such as one with a `wrong` lossless verdict."""
