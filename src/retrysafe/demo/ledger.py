"""The card network's own records: which money was really taken.

It stands for a service that is not ours.  Its books are apart from the idempotency keys, are on the disk
before it answers, and survive a `kill -9` of whoever asked: they are what both sides are judged by.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import sleep
from typing import NamedTuple
from uuid import uuid4

from retrysafe.demo.client import Payment


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


class Balance(NamedTuple):
    should: int
    """Cents that customers meant to pay."""
    taken: int
    """Cents that the card network took."""
    wrong: dict[str, str]
    """By order: where the truth is not what the customer meant and was told."""

    @property
    def difference(self) -> int:
        return self.taken - self.should


def balance(
    payments: Iterable[Payment], receipts: Mapping[str, Iterable[str]], charges: Iterable[Charge]
) -> Balance:
    """`receipts` are the numbers that each order's customer was given, one per click."""
    payments, charges = list(payments), list(charges)
    found: dict[str, list[Charge]] = {}
    for charge in charges:
        found.setdefault(charge.order, []).append(charge)
    wrong = {
        payment.order: what
        for payment in payments
        if (what := _compare(payment, list(receipts.get(payment.order, ())), found.pop(payment.order, [])))
    }
    wrong |= dict.fromkeys(found, "was charged, and nobody meant to pay it")
    return Balance(sum(payment.cents for payment in payments), sum(charge.cents for charge in charges), wrong)


def _compare(payment: Payment, receipts: list[str], charges: list[Charge]) -> str:
    """What is wrong with one payment; nothing if nothing is."""
    if len(charges) != 1:
        return "was never charged" if not charges else f"was charged {len(charges)} times"
    charge = charges[0]
    if (charge.customer, charge.cents) != (payment.customer, payment.cents):
        return f"charged {charge.cents} cents to {charge.customer}, not {payment.cents} to {payment.customer}"
    if len(receipts) < payment.clicks:
        return "was charged, and the customer never heard of it"
    if set(receipts) != {charge.receipt}:
        return f"was charged as {charge.receipt}, but the customer was told {' and '.join(receipts)}"
    return ""
