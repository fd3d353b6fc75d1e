"""Errors for the user: the command line prints their message as one line, without a traceback."""

from __future__ import annotations

_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


class UserError(Exception):
    """An error that the user can fix; the message says how. One line per argument.

    Control characters (from values and file names) are escaped, to protect terminal and line.
    """

    def __str__(self) -> str:
        return "\n".join(str(line).translate(_CONTROL) for line in self.args)


class ConfigError(UserError):
    """A setting that is unknown, has a wrong type or range, or conflicts with another one."""


class RunError(UserError):
    """A run that finished but must not count as done, such as one with a `wrong` verdict."""
