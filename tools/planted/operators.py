"""Interventions that do more than an operator asked for, or nothing."""

from typing import Any

from retrysafe._core.model import Record
from retrysafe.stores.memory_admin import MemoryAdmin, R
from retrysafe.testing.simulate.model import ModelStore
from tools.planted.bug import HOLD, REASONED, RETRY, Planted


class _Careless(MemoryAdmin[R]):
    """Settles whatever is there under a key."""

    def _as_seen(self, seen: Record, now: float, *, settled: bool) -> R | None:
        return self._rows.get(seen.id)


class _Hasty(MemoryAdmin[R]):
    """Does not check whether the owner still holds its lease."""

    def _as_seen(self, seen: Record, now: float, *, settled: bool) -> R | None:
        row = self._rows.get(seen.id)
        return row if row is not None and row.claim.token == seen.token else None


class _Timid(MemoryAdmin[R]):
    """Finds that nothing is as it was seen."""

    def _as_seen(self, seen: Record, now: float, *, settled: bool) -> R | None:
        return None


class Careless(ModelStore):
    def open_admin(self) -> MemoryAdmin[Any]:
        return _Careless[Any](self._rows, self._books, lambda: self._lock, self._clock)


class Hasty(ModelStore):
    def open_admin(self) -> MemoryAdmin[Any]:
        return _Hasty[Any](self._rows, self._books, lambda: self._lock, self._clock)


class Timid(ModelStore):
    def open_admin(self) -> MemoryAdmin[Any]:
        return _Timid[Any](self._rows, self._books, lambda: self._lock, self._clock)


PLANTED = (
    Planted(
        "an operator settles another attempt than the one that was seen",
        REASONED,
        RETRY._replace(store=Careless),
    ),
    Planted(
        "an operator settles what is still running",
        REASONED,
        HOLD._replace(store=Hasty),
    ),
    Planted(
        "an operator may settle nothing",
        REASONED,
        HOLD._replace(store=Timid),
    ),
)
