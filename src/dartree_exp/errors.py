"""Errors that carry a message for the user: the command line prints the message as one line,
without a traceback.
"""

from __future__ import annotations

_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


class UserError(Exception):
    """Something the user can put right; `str(error)` says what is wrong and how to fix it, one line
    per argument.

    Control characters, which come with values and file names that a message repeats, are shown
    escaped, so that they neither reach the terminal nor break the line.
    """

    def __str__(self) -> str:
        return "\n".join(str(line).translate(_CONTROL) for line in self.args)


class ConfigError(UserError):
    """A setting that is unknown, has a wrong type or range, or cannot work with another one."""


class RunError(UserError):
    """A run that finished its work but must not count as done, such as one with a `wrong` lossless
    verdict.
    """
