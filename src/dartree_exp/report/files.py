"""What a report writes and what it complains about."""

from __future__ import annotations

import sys
from pathlib import Path

from dartree_exp.console.printable import printable_line
from dartree_exp.errors import UserError
from dartree_exp.records import RecordError
from dartree_exp.records.atomic import explained
from dartree_exp.records.files import write_atomic


class Files:
    """Writes what a report leaves behind. What cannot be written is counted, said in one line at
    the end, and stops nothing.
    """

    def __init__(self) -> None:
        self._refused: list[RecordError] = []

    def write(self, path: Path, text: str) -> bool:
        """Write a file, and the folder it lies in where that is not there yet; whether it could be
        written.
        """
        try:
            with explained(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except RecordError as error:
            self._refused.append(error)
            return False
        return True

    def conclude(self) -> bool:
        """Whether something could not be written; it is said here."""
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
    """Say it in one line; True, so that a caller can note that something failed."""
    print(f"error: {printable_line(error)}", file=sys.stderr)
    return True
