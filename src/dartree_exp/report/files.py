"""Writing a report's files and printing its errors."""

from __future__ import annotations

import sys
from pathlib import Path

from dartree_exp.console.printable import printable_line
from dartree_exp.errors import UserError
from dartree_exp.records import RecordError
from dartree_exp.records.atomic import explained
from dartree_exp.records.files import write_atomic


class Files:
    """Writes a report's files. Files that cannot be written are counted and named in one line at
    the end.
    """

    def __init__(self) -> None:
        self._refused: list[RecordError] = []

    def write(self, path: Path, text: str) -> bool:
        """Write a file, and its folder if it does not exist. Returns whether it was written."""
        try:
            with explained(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except RecordError as error:
            self._refused.append(error)
            return False
        return True

    def conclude(self) -> bool:
        """Print an error if a file could not be written. Returns whether there was one."""
        if self._refused:
            count = len(self._refused)
            files = "a file" if count == 1 else f"{count} files, the first of them"
            complain(
                RecordError(
                    f"tables are complete above, but could not write {files}: {self._refused[0]}"
                )
            )
        return bool(self._refused)


def complain(error: UserError) -> bool:
    """Print an error in one line. Returns True, for the caller to store."""
    print(f"error: {printable_line(error)}", file=sys.stderr)
    return True
