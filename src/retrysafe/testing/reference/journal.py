"""What the service remembers of what it did: effects, deletions, attempts.

Effects and deletions are what an idempotency layer is about; with `--tx` they are rows in the store's own
database (`tables.py`), else lines in files.  Attempts are counted even if all that they did was rolled back,
so they are lines in files always.
"""

from pathlib import Path
from typing import Protocol

from retrysafe.testing.reference.ledger import Ledger


class Journal(Protocol):
    """One set for all processes that serve the application."""

    def open(self) -> None:
        """Called in each process that serves, in its event loop if it has one."""
        ...

    def close(self) -> None:
        """Called when it has served; from a thread, if it has an event loop."""
        ...

    def effect(self, label: str) -> None:
        """Let an effect happen."""
        ...

    def effects(self, label: str) -> int:
        """How often one with this label really happened."""
        ...

    def delete(self, item: str) -> bool:
        """Delete a thing; false if it was gone already."""
        ...

    def begin(self, label: str) -> None:
        """Note that a handler begins its work."""
        ...

    def begun(self, label: str) -> int:
        """How often one did."""
        ...

    def written(self, label: str) -> int:
        """How often an effect was written, committed or not."""
        ...

    def attempt(self, label: str) -> int:
        """Count an attempt; the how manyth it is."""
        ...


class Files:
    """Everything in files, beside the one that is named."""

    def __init__(self, effects: Path) -> None:
        self._effects = Ledger(effects)
        self._deleted = Ledger(effects.with_name(effects.name + ".deleted"))
        self._begun = Ledger(effects.with_name(effects.name + ".begun"))
        self._attempts = Ledger(effects.with_name(effects.name + ".attempts"))

    def open(self) -> None:
        """Files are opened when they are written."""

    def close(self) -> None:
        """And closed."""

    def effect(self, label: str) -> None:
        self._effects.add(label)

    def effects(self, label: str) -> int:
        return self._effects.count(label)

    def delete(self, item: str) -> bool:
        return self._deleted.add(item) == 1

    def begin(self, label: str) -> None:
        self._begun.note(label)

    def begun(self, label: str) -> int:
        return self._begun.count(label)

    def written(self, label: str) -> int:
        return self._effects.count(label)

    def attempt(self, label: str) -> int:
        return self._attempts.add(label)
