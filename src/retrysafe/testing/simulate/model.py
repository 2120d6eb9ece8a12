"""The store of most worlds, and what a store may have besides the contract, to be wrecked further.

The model is the store in memory: the contract in its shortest form.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from retrysafe._core.model import Claim, Final
from retrysafe.stores.memory import MemoryStore


@runtime_checkable
class Fragile(Protocol):
    """A store whose records can be damaged.  Without it, that fault never happens."""

    def lose_lease(self, id: bytes) -> None:
        """The record is there, and its lease is not."""


@runtime_checkable
class Database(Protocol):
    """A store that carries effects with outcomes, as transactional mode has it.

    Without it an outcome is kept by `finish`, and that its effect goes with it is taken for granted.
    """

    def commit_with_effect(self, claim: Claim, final: Final, effect: bytes) -> bool:
        """Keep the outcome and the effect in one transaction; neither, if somebody else holds the key."""
        ...

    def effects(self) -> Sequence[bytes]:
        """Every effect that was ever committed."""
        ...


class ModelStore(MemoryStore):
    def lose_lease(self, id: bytes) -> None:
        """As a damaged store would have it."""
        row = self._rows.get(id)
        if row is not None:  # else it is lost altogether, which somebody will notice
            row.lease_until = None
