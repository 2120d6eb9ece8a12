"""What the workers write down as it happens, and somebody outside reads: one file, one line for each event.

    arrived   a request for a key is here
    executed  a handler has had its effect; in the modes in which effects are outside, this line is the effect
    telling   the store is about to be told what became of the attempt: an outcome, or that nothing happened
    left      the request has been dealt with
    fell      into a trap: the last thing that this worker does, for a while or for ever

A line is one short `write` to a file that is open for appending: it is there or it is not, whoever is killed
or frozen, and nobody waits for anybody else.  Times are those of the monotonic clock, which on one machine is
the same for all processes.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

JOURNAL = "RETRYSAFE_CRASH_JOURNAL"
"""Names the file, in the environment of the workers."""


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
        line = "\t".join([what, f"{time.monotonic():.6f}", str(os.getpid()), *said])
        os.write(self._file, line.encode() + b"\n")


class Reader:
    """The other end."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def news(self) -> list[Entry]:
        """What was written since the last time."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [_entry(line.decode()) for line in lines]

    def close(self) -> None:
        self._file.close()


def _entry(line: str) -> Entry:
    what, at, pid, *said = line.split("\t")
    return Entry(what, float(at), int(pid), said)
