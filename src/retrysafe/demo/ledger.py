"""The card network's own records: which money was really taken, compared with what should have been.

The card network stands for a service that is not ours.  Its records are apart from the idempotency keys, are
on the disk before it responds, and survive a `kill -9` of its caller: every run is judged by them.
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
    """Takes money each time it is called: it knows nothing of keys.

    `on_charge` is called with an order and "before" or "after" its money is taken.  The demo uses it to hold
    a payment at exactly the moment at which it wants to kill the server.
    """

    def __init__(self, ledger: Ledger, on_charge: Callable[[str, str], object]) -> None:
        self.ledger = ledger
        self._on_charge = on_charge

    def charge(self, customer: str, order: str, cents: int, seconds: float) -> Charge:
        """Take the money; `seconds` is how long that takes, half of it until the money is taken."""
        charge = Charge(f"r-{uuid4().hex[:8]}", customer, order, cents)
        sleep(seconds / 2)
        self._on_charge(order, "before")
        self.ledger.add(charge)
        self._on_charge(order, "after")
        sleep(seconds / 2)
        return charge


class Balance(NamedTuple):
    expected: int
    """Cents that customers meant to pay."""
    taken: int
    """Cents that the card network took."""
    errors: dict[str, str]
    """By order: how its charge or its receipt differs from what the customer meant to pay."""

    @property
    def difference(self) -> int:
        return self.taken - self.expected


def reconcile(
    payments: Iterable[Payment], receipts: Mapping[str, Iterable[str]], charges: Iterable[Charge]
) -> Balance:
    """`receipts` are the numbers that each order's customer received, one per click."""
    payments, charges = list(payments), list(charges)
    by_order: dict[str, list[Charge]] = {}
    for charge in charges:
        by_order.setdefault(charge.order, []).append(charge)
    errors = {
        payment.order: error
        for payment in payments
        if (error := _error(payment, list(receipts.get(payment.order, ())), by_order.pop(payment.order, [])))
    }
    errors |= dict.fromkeys(by_order, "was charged, and is not an order of any customer")
    return Balance(
        sum(payment.cents for payment in payments), sum(charge.cents for charge in charges), errors
    )


def _error(payment: Payment, receipts: list[str], charges: list[Charge]) -> str:
    """What is wrong with one payment; empty if it is right."""
    if len(charges) != 1:
        return "was never charged" if not charges else f"was charged {len(charges)} times"
    charge = charges[0]
    if (charge.customer, charge.cents) != (payment.customer, payment.cents):
        return f"charged {charge.cents} cents to {charge.customer}, not {payment.cents} to {payment.customer}"
    if len(receipts) < payment.clicks:
        return "was charged, and the customer got no receipt"
    if set(receipts) != {charge.receipt}:
        return f"was charged as {charge.receipt}, but the customer's receipt is {' and '.join(receipts)}"
    return ""
