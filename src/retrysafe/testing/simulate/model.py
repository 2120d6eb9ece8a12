"""The store of most worlds: the one in memory, which is the contract in its shortest form."""

from retrysafe.stores.memory import MemoryStore


class ModelStore(MemoryStore):
    def lose_lease(self, id: bytes) -> None:
        """As a damaged store would: the record is there, and its lease is not."""
        self._rows[id].lease_until = None
