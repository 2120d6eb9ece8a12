"""What really happened, in a file, so that it is right across processes, crashes and restarts."""

import os
from pathlib import Path


class Ledger:
    """A file with one line per event; the line is the event's label.

    Nothing is kept in memory and nothing is locked: the kernel puts every `O_APPEND` write behind
    the one before, whichever process it comes from, and the place where a line landed is its
    number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, label: str) -> int:
        """Write a line to the disk; how many there are with its label so far, this one included."""
        line = _line(label)
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
            os.fsync(file)
            end = os.lseek(file, 0, os.SEEK_CUR)
            return _count(os.pread(file, end, 0), line)
        finally:
            os.close(file)

    def note(self, label: str) -> None:
        """Write a line that need not survive the machine."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, _line(label))
        finally:
            os.close(file)

    def count(self, label: str) -> int:
        """How many lines there are with a label."""
        return _count(self._path.read_bytes(), _line(label))


def _line(label: str) -> bytes:
    # A label comes out of a request: whatever would end a line becomes a space.
    return " ".join(label.splitlines()).encode("utf-8", "replace") + b"\n"


def _count(text: bytes, line: bytes) -> int:
    return sum(found == line for found in text.splitlines(keepends=True))
