"""The store of most worlds, and the methods beyond the contract by which a store can be tested further.

The model is the store in memory: the contract in its shortest form.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from retrysafe._core.model import Claim, Final, Unsettled
from retrysafe.stores.memory import MemoryStore


@runtime_checkable
class Fragile(Protocol):
    """A store whose records can be damaged.  Without this method, that fault never happens."""

    def lose_lease(self, id: bytes) -> None:
        """Remove the lease of a record, and leave the record."""


@runtime_checkable
class Database(Protocol):
    """A store that carries effects with outcomes, as transactional mode has it.

    Without it an outcome is stored by `finish`, and that its effect is committed with it is assumed.
    """

    def commit_with_effect(self, claim: Claim, final: Final, effect: bytes) -> bool:
        """Store the outcome and the effect in one transaction; neither, if another claim holds the key."""
        ...

    def effects(self) -> Sequence[bytes]:
        """Every effect that was ever committed."""
        ...


class Within(NamedTuple):
    """The record of an operation that is a part of a transaction."""

    claim: Claim
    final: Final
    previous: tuple[bytes, Unsettled] | None
    """The token and state of the attempt that it replaces."""


@runtime_checkable
class Nesting(Protocol):
    """A store in whose transactions operations can be parts of other calls: what `door="nested"` needs."""

    def could_store_within(self, within: Within) -> bool:
        """Whether a transaction could store this record now; nothing is stored."""
        ...

    def commit_with_parts(
        self, claim: Claim, final: Final, effects: Sequence[bytes], parts: Sequence[Within]
    ) -> bool:
        """Store the outcome, the effects and the parts in one transaction; or nothing, if that fails."""
        ...

    def effects(self) -> Sequence[bytes]:
        """Every effect that was ever committed."""
        ...


class ModelStore(MemoryStore):
    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._effects: list[bytes] = []

    def lose_lease(self, id: bytes) -> None:
        """As in a damaged store."""
        row = self._rows.get(id)
        if row is not None:  # else the record is lost altogether, which a check notices
            row.lease_until = None

    def could_store_within(self, within: Within) -> bool:
        found, now = self._rows.get(within.claim.id), self._clock()
        if found is None or found.expired(now):
            return True
        if within.previous != (found.claim.token, found.state):
            return False
        return found.state == "failed" or (not found.checkpointed and found.lapsed(now))

    def commit_with_parts(
        self, claim: Claim, final: Final, effects: Sequence[bytes], parts: Sequence[Within]
    ) -> bool:
        if not all(map(self.could_store_within, parts)) or not self.finish(claim, final):
            return False
        for part in parts:
            found = self._rows.pop(part.claim.id, None)
            self.reserve(part.claim)
            if found is not None and not found.expired(self._clock()):
                self._rows[part.claim.id].attempt = found.attempt + 1
            self.finish(part.claim, part.final)
        self._effects += effects
        return True

    def effects(self) -> Sequence[bytes]:
        return self._effects
