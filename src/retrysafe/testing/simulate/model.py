"""The store of most worlds, and the methods beyond the contract by which a store can be tested further.

The model is the store in memory: the contract in its shortest form.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from retrysafe._core.model import Claim, Final
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


class ModelStore(MemoryStore):
    def lose_lease(self, id: bytes) -> None:
        """As in a damaged store."""
        row = self._rows.get(id)
        if row is not None:  # else the record is lost altogether, which a check notices
            row.lease_until = None
