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
from collections import defaultdict
from collections.abc import Sequence
from math import inf
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


SLOW = 0.9
"""Of a lease.  It begins when its owner has come, or later: an attempt that was over sooner than this cannot
have lost it, renewed or not.  What is missing to the whole is for clocks that do not go alike."""


class Execution(NamedTuple):
    id: str
    mood: str
    at: float
    pid: int
    serial: str
    """Of the request, in that process."""


class _Span(NamedTuple):
    began: float
    ended: float

    def meets(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


class _Visit:
    """One request, in the worker that served it."""

    __slots__ = ("began", "ended", "pid", "told")

    def __init__(self, began: float, pid: int) -> None:
        self.began = began
        self.ended = inf
        self.pid = pid
        self.told = False


class Chronicle:
    def __init__(self, lease: float) -> None:
        self._slow = lease * SLOW
        self._visits: defaultdict[str, list[_Visit]] = defaultdict(list)
        self._visit: dict[tuple[int, str], _Visit] = {}
        self._strikes: defaultdict[int, list[_Span]] = defaultdict(list)
        self._outages: list[_Span] = []
        self._executions: defaultdict[str, list[Execution]] = defaultdict(list)

    def add(self, entries: Sequence[Entry]) -> None:
        for what, at, pid, said in entries:
            match what, said:
                case "arrived", [serial, key]:
                    visit = self._visit[pid, serial] = _Visit(at, pid)
                    self._visits[key].append(visit)
                case "left", [serial]:
                    self._visit[pid, serial].ended = at
                case "telling", [serial]:
                    self._visit[pid, serial].told = True
                case "executed", [serial, key, id, mood]:
                    self._executions[key].append(Execution(id, mood, at, pid, serial))
                case "fell", ["kill", _, _]:
                    self.struck(pid, at)
                case "fell", ["stop", _, _]:
                    pass  # whoever wakes it says for how long it slept
                case _:
                    raise ValueError(f"the journal says {what!r} with {said}, which nobody writes")

    def struck(self, pid: int, began: float, ended: float = inf) -> None:
        """A worker was killed, or slept until then."""
        self._strikes[pid].append(_Span(began, ended))

    def was_cut(self, pid: int, at: float) -> None:
        """One of its connections to the database was: whatever it was at then may have to do without."""
        self._strikes[pid].append(_Span(at, at))

    def was_out(self, began: float, ended: float) -> None:
        """The database could not be relied upon, by anybody."""
        self._outages.append(_Span(began, ended))

    def executions(self, key: str) -> list[Execution]:
        """In the order in which they happened."""
        return sorted(self._executions.get(key, ()), key=lambda done: done.at)

    @property
    def executed(self) -> int:
        """How often, in all."""
        return sum(map(len, self._executions.values()))

    def keys(self) -> set[str]:
        return set(self._visits)

    def losses(self, key: str) -> int:
        """Attempts at a key that may have lost their lease."""
        return sum(map(self._may_have_lost, self._visits.get(key, ())))

    def is_excused(self, execution: Execution) -> bool:
        """Whether the very attempt that had this effect may have lost its lease."""
        visit = self._visit[execution.pid, execution.serial]
        # A handler may outlive its request, whose client has gone away.
        return self._may_have_lost(visit, execution.at)

    def has_told(self, execution: Execution) -> bool:
        """Whether the attempt that had this effect came to tell the store what became of it.

        Killed or cut off at that, it may have done so or not; before it, it has not, whatever it meant to do.
        """
        return self._visit[execution.pid, execution.serial].told

    def came_after(self, later: Execution, earlier: Execution) -> bool:
        """Whether the one came only when the other's request, with this effect in it, had been answered."""
        first = self._visit[earlier.pid, earlier.serial]
        return earlier.at <= first.ended < self._visit[later.pid, later.serial].began

    def _may_have_lost(self, visit: _Visit, until: float = -inf) -> bool:
        ended = max(visit.ended, until)
        return ended - visit.began > self._slow or any(
            span.meets(visit.began, ended) for span in (*self._strikes.get(visit.pid, ()), *self._outages)
        )
