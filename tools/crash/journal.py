"""What the workers write down as it happens, and somebody outside reads: one file, one line for each event.

    arrived   a request for a key is here
    executed  a handler has had its effect; in the modes in which effects are outside, this line is the effect
    telling   the store is about to be told what became of the attempt: an outcome, or that nothing happened
    left      the request has been dealt with
    fell      into a trap: the last thing that this worker does, for a while or for ever

A line is one short `write` to a file that is open for appending, and nobody waits for anybody else.
Whoever is killed in the middle of one leaves half of it (where a page of the file ends), and that counts as
not written: so a line begins where the one before may have broken off, and says that it is whole.  Times
are those of the monotonic clock, which on one machine is the same for all processes.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

JOURNAL = "RETRYSAFE_CRASH_JOURNAL"
"""Names the file, in the environment of the workers."""

_WHOLE = "."
"""The last field of every line."""


class Entry(NamedTuple):
    what: str
    at: float
    pid: int
    said: list[str]


class Journal:
    """The workers' end.  It may be opened before they are forked."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, what: str, *said: str) -> None:
        line = "\t".join([what, f"{time.monotonic():.6f}", str(os.getpid()), *said, _WHOLE])
        os.write(self._file, b"\n" + line.encode() + b"\n")


class Reader:
    """The other end."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def news(self) -> list[Entry]:
        """What was written since the last time."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [entry for line in lines if (entry := _entry(line.decode()))]

    def close(self) -> None:
        self._file.close()


def _entry(line: str) -> Entry | None:
    *fields, last = line.split("\t")
    if last != _WHOLE:
        return None  # empty, or broken off
    what, at, pid, *said = fields
    return Entry(what, float(at), int(pid), said)
