"""The card network's own records: which money was really taken.

It stands for a service that is not ours.  Its books are apart from the idempotency keys, are on the disk
before it answers, and survive a `kill -9` of whoever asked: they are what both sides are judged by.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import NamedTuple
from uuid import uuid4


class Charge(NamedTuple):
    """Money that was taken."""

    receipt: str
    customer: str
    order: str
    cents: int


class Ledger:
    """A file with one line per charge.  Lines are only ever added, and each is flushed to the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, charge: Charge) -> None:
        # O_APPEND: the kernel puts each write behind the one before, whichever thread it comes from.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, json.dumps(charge._asdict()).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def charges(self) -> list[Charge]:
        # A line that has no end yet is being written at this moment.
        lines = self._path.read_text().splitlines(keepends=True)
        return [Charge(**json.loads(line)) for line in lines if line.endswith("\n")]


class CardNetwork:
    """Takes money when asked to, every time it is asked to: it knows nothing of keys.

    `meanwhile` is called with an order and "before" or "after" its money is taken.  The demo uses it to hold
    a payment at exactly the moment at which it wants to kill the server.
    """

    def __init__(self, ledger: Ledger, meanwhile: Callable[[str, str], object]) -> None:
        self.ledger = ledger
        self._meanwhile = meanwhile

    def charge(self, customer: str, order: str, cents: int, seconds: float) -> Charge:
        """Take the money; `seconds` is how long that takes, half of it until the money is taken."""
        charge = Charge(f"r-{uuid4().hex[:8]}", customer, order, cents)
        sleep(seconds / 2)
        self._meanwhile(order, "before")
        self.ledger.add(charge)
        self._meanwhile(order, "after")
        sleep(seconds / 2)
        return charge
