"""The journal that workers write while they serve, and the timeline that the harness makes of it.

The journal is one file with one line for each event:

    arrived   a request for a key has arrived, or a worker begins with a payload
    executed  a handler has had its effect; in the modes in which effects are outside, this line is the effect
    storing   the store is about to be given the outcome of the attempt, or its release
    left      the request is over
    trapped   the worker has reached its trap: the last thing that it does, until it is continued or for ever

A line is one short `write` to a file that is open for appending, so no worker waits for another.  A worker
that is killed inside of it leaves half a line (where a page of the file ends), which counts as not written: a
line begins with a line break, and ends with a mark that it is whole.  Times are those of the monotonic clock,
which on one machine is the same for all processes.

The timeline counts, for each key, the attempts that may have lost their lease: because their worker was
killed, frozen, cut off or slow.  The store is never asked.
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

SLOW = 0.9
"""Of a lease.  It begins when its owner has arrived, or later: an attempt that was over sooner than this
cannot have lost it, renewed or not.  The rest is for clocks that differ."""


class Entry(NamedTuple):
    event: str
    at: float
    pid: int
    fields: list[str]


class Journal:
    """The workers' end.  It may be opened before they are forked."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, event: str, *fields: str) -> None:
        line = "\t".join([event, f"{time.monotonic():.6f}", str(os.getpid()), *fields, _WHOLE])
        os.write(self._file, b"\n" + line.encode() + b"\n")


class Reader:
    """The harness's end."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def news(self) -> list[Entry]:
        """What was written since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [entry for line in lines if (entry := _entry(line.decode()))]

    def close(self) -> None:
        self._file.close()


def _entry(line: str) -> Entry | None:
    *fields, last = line.split("\t")
    if last != _WHOLE:
        return None  # empty, or half a line
    event, at, pid, *rest = fields
    return Entry(event, float(at), int(pid), rest)


class Execution(NamedTuple):
    id: str
    ending: str
    at: float
    pid: int
    serial: str
    """Of the request, in that process."""
    derived: str = ""
    """The key that was passed on to another service, if one was."""


class _Span(NamedTuple):
    began: float
    ended: float

    def meets(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


class _Visit:
    """One request, in the worker that served it."""

    __slots__ = ("began", "ended", "pid", "stored")

    def __init__(self, began: float, pid: int) -> None:
        self.began = began
        self.ended = inf
        self.pid = pid
        self.stored = False


class Timeline:
    """When each key was served, when workers were interrupted, and when handlers had their effects."""

    def __init__(self, lease: float) -> None:
        self._slow = lease * SLOW
        self._visits: defaultdict[str, list[_Visit]] = defaultdict(list)
        self._visit: dict[tuple[int, str], _Visit] = {}
        self._interrupted: defaultdict[int, list[_Span]] = defaultdict(list)
        self._outages: list[_Span] = []
        self._executions: defaultdict[str, list[Execution]] = defaultdict(list)

    def add(self, entries: Sequence[Entry]) -> None:
        for event, at, pid, fields in entries:
            match event, fields:
                case "arrived", [serial, key]:
                    visit = self._visit[pid, serial] = _Visit(at, pid)
                    self._visits[key].append(visit)
                case "left", [serial]:
                    self._visit[pid, serial].ended = at
                case "storing", [serial]:
                    self._visit[pid, serial].stored = True
                case "executed", [serial, key, id, ending, *derived]:
                    self._executions[key].append(Execution(id, ending, at, pid, serial, "".join(derived)))
                case "trapped", ["kill", _, _]:
                    self.interrupted(pid, at)
                case "trapped", ["stop", _, _]:
                    pass  # reported when the worker is continued, with the time for which it was frozen
                case _:
                    raise ValueError(f"the journal has {event!r} with {fields}, which no worker writes")

    def interrupted(self, pid: int, began: float, ended: float = inf) -> None:
        """A worker was killed, or frozen until then."""
        self._interrupted[pid].append(_Span(began, ended))

    def was_cut(self, pid: int, at: float) -> None:
        """A worker lost a connection to the database, and with it perhaps whatever it was doing there."""
        self._interrupted[pid].append(_Span(at, at))

    def was_out(self, began: float, ended: float) -> None:
        """The database was not available to any worker."""
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

    def lost_leases(self, key: str) -> int:
        """Attempts at a key that may have lost their lease."""
        return sum(map(self._may_have_lost, self._visits.get(key, ())))

    def may_have_lost_lease(self, execution: Execution) -> bool:
        """Whether the very attempt that had this effect may have."""
        visit = self._visit[execution.pid, execution.serial]
        # A handler may outlive its request, whose client has gone away.
        return self._may_have_lost(visit, execution.at)

    def has_stored(self, execution: Execution) -> bool:
        """Whether the attempt that had this effect got as far as giving the store its outcome.

        Killed or cut off at that moment, it may have stored it or not; before it, it has not.
        """
        return self._visit[execution.pid, execution.serial].stored

    def arrived_after(self, later: Execution, earlier: Execution) -> bool:
        """Whether one arrived only after the request of the other, with this effect in it, was over."""
        first = self._visit[earlier.pid, earlier.serial]
        return earlier.at <= first.ended < self._visit[later.pid, later.serial].began

    def _may_have_lost(self, visit: _Visit, until: float = -inf) -> bool:
        ended = max(visit.ended, until)
        return ended - visit.began > self._slow or any(
            span.meets(visit.began, ended) for span in (*self._interrupted.get(visit.pid, ()), *self._outages)
        )
