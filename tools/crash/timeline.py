"""What really happened, whatever the store believes: who was at a key when, who was struck when, who has had
an effect.

A lease is lost where its owner died, slept or was starved; so this counts, for each key, the attempts to
which that can have happened.  Nothing here was asked of the store.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from tools.crash.journal import Entry

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
