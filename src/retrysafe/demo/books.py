"""Balancing the books: what customers meant and were told, against what was really taken."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from retrysafe.demo.client import Payment
from retrysafe.demo.ledger import Charge


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
