"""What really happened, whatever the store believes: who was at a key when, who was struck when, who has had
an effect.

A lease is lost where its owner died, slept or was starved; so this counts, for each key, the attempts to
which that can have happened.  Nothing here was asked of the store.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from retrysafe.testing.crash.journal import Entry

SLOW = 0.6
"""Of a lease.  It is renewed at a third; an attempt that was over sooner than this cannot have lost it."""


class Execution(NamedTuple):
    id: str
    mood: str
    at: float
    pid: int


class _Span(NamedTuple):
    began: float
    ended: float

    def meets(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


class _Visit:
    """One request, in the worker that served it."""

    __slots__ = ("began", "ended", "pid")

    def __init__(self, began: float, pid: int) -> None:
        self.began = began
        self.ended = inf
        self.pid = pid


class Chronicle:
    def __init__(self, lease: float) -> None:
        self._slow = lease * SLOW
        self._visits: defaultdict[str, list[_Visit]] = defaultdict(list)
        self._open: dict[tuple[int, str], _Visit] = {}
        self._strikes: defaultdict[int, list[_Span]] = defaultdict(list)
        self._outages: list[_Span] = []
        self._executions: defaultdict[str, list[Execution]] = defaultdict(list)

    def add(self, entries: Sequence[Entry]) -> None:
        for what, at, pid, said in entries:
            match what, said:
                case "arrived", [serial, key]:
                    visit = self._open[pid, serial] = _Visit(at, pid)
                    self._visits[key].append(visit)
                case "left", [serial]:
                    self._open.pop((pid, serial)).ended = at
                case "executed", [key, id, mood]:
                    self._executions[key].append(Execution(id, mood, at, pid))
                case "fell", ["kill", _]:
                    self.struck(pid, at)
                case "fell", ["stop", _]:
                    pass  # whoever wakes it says for how long it slept
                case _:
                    raise ValueError(f"the journal says {what!r} with {said}, which nobody writes")

    def struck(self, pid: int, began: float, ended: float = inf) -> None:
        """A worker was killed, or slept until then."""
        self._strikes[pid].append(_Span(began, ended))

    def was_out(self, began: float, ended: float) -> None:
        """The database could not be relied upon."""
        self._outages.append(_Span(began, ended))

    def executions(self, key: str) -> list[Execution]:
        return self._executions.get(key, [])

    @property
    def executed(self) -> int:
        """How often, in all."""
        return sum(map(len, self._executions.values()))

    def keys(self) -> set[str]:
        return set(self._visits)

    def losses(self, key: str) -> int:
        """Attempts at a key that may have lost their lease."""
        return sum(map(self._may_have_lost, self._visits.get(key, ())))

    def is_excused(self, key: str, execution: Execution) -> bool:
        """Whether the very attempt that had this effect may have lost its lease."""
        here = [visit for visit in self._visits.get(key, ()) if visit.pid == execution.pid]
        # A handler may outlive its request, whose client has gone away: then it is any of them.
        meant = [visit for visit in here if visit.began <= execution.at <= visit.ended] or here
        return any(map(self._may_have_lost, meant))

    def _may_have_lost(self, visit: _Visit) -> bool:
        return visit.ended - visit.began > self._slow or any(
            span.meets(visit.began, visit.ended)
            for span in (*self._strikes.get(visit.pid, ()), *self._outages)
        )
