"""Checks the books of every tenant: `python -m examples.erp.audit`.

Whatever was cut off, killed and sent again: every document was entered once, stock has moved as sales, orders
and transfers say, and money was taken once, by the card provider's books too.
"""

import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, orm, select

from examples.erp.models import Bill, Movement, Payment, Stock, Tenant


class Charge(NamedTuple):
    """What the card provider knows of a charge."""

    id: str
    reference: str
    amount: int
    captured: int


def audit(engine: Engine, books: Path) -> dict[str, list[str]]:
    """What does not add up, in sentences, by tenant."""
    with closing(sqlite3.connect(books)) as provider:
        rows = provider.execute("SELECT id, reference, amount, captured FROM charges")
        charges = [Charge(*row) for row in rows]
    with orm.Session(engine) as session:
        return {
            tenant.name: list(_check(session, tenant, charges)) for tenant in session.scalars(select(Tenant))
        }


def _check(session: orm.Session, tenant: Tenant, charges: list[Charge]) -> Iterator[str]:
    bills = session.scalars(select(Bill).where(Bill.tenant_id == tenant.id).order_by(Bill.id)).all()
    payments = session.scalars(select(Payment).where(Payment.tenant_id == tenant.id)).all()
    movements = session.scalars(select(Movement).where(Movement.tenant_id == tenant.id)).all()
    stock = session.scalars(select(Stock).where(Stock.tenant_id == tenant.id)).all()
    yield from _doubles("{} {} was entered", ((bill.kind, bill.reference) for bill in bills))
    yield from _doubles("the payment {} was entered", ((payment.receipt,) for payment in payments))
    yield from _doubles(
        "bill {}: {} has {}",
        ((line.bill_id, line.reference, line.product) for bill in bills for line in bill.lines),
    )
    yield from _doubles(
        "{} {} moved {} in the {}",
        (
            (one.reason, one.reference, one.product, one.place)
            for one in movements
            if one.reason in ("transfer", "count")
        ),
    )
    yield from _check_stock(stock, movements)
    left: defaultdict[int | None, list[Movement]] = defaultdict(list)
    for one in movements:
        left[one.bill_id].append(one)
    for bill in bills:
        yield from _check_bill(bill, left[bill.id])
    yield from _check_cards(tenant, payments, charges)


def _doubles(sentence: str, entered: Iterable[tuple[object, ...]]) -> Iterator[str]:
    for what, times in Counter(entered).items():
        if times > 1:
            yield f"{sentence.format(*what)} {times} times"


def _check_stock(stock: Iterable[Stock], movements: Iterable[Movement]) -> Iterator[str]:
    moved: Counter[tuple[str, str]] = Counter()
    in_transit: Counter[tuple[str, str]] = Counter()
    for one in movements:
        moved[one.place, one.product] += one.quantity
        if one.reason == "transfer":
            in_transit[one.reference, one.product] += one.quantity
    for shelf in stock:
        said = moved[shelf.place, shelf.product]
        if shelf.on_hand != said:
            yield f"{shelf.on_hand} {shelf.product} are in the {shelf.place}, and by its movements {said}"
    for (reference, product), lost in in_transit.items():
        if lost:
            yield f"transfer {reference}: {-lost} {product} left, and did not arrive"


def _check_bill(bill: Bill, movements: Iterable[Movement]) -> Iterator[str]:
    name = f"{bill.kind} {bill.id}"
    sold: Counter[str] = Counter()
    for line in bill.lines:
        sold[line.product] += line.quantity
    left: Counter[str] = Counter()
    for one in movements:
        left[one.product] -= one.quantity
    if sold != left:
        yield f"{name}: it has {dict(sold)}, and {dict(left)} left the stock"
    price = sum(line.quantity * line.price for line in bill.lines)
    if bill.total != price:
        yield f"{name}: its total is {bill.total}, and its lines cost {price}"
    paid = sum(payment.amount for payment in bill.payments)
    if paid > bill.total:
        yield f"{name}: {paid} was paid, and {bill.total} owed"


def _check_cards(tenant: Tenant, payments: Iterable[Payment], charges: Iterable[Charge]) -> Iterator[str]:
    by_card: defaultdict[str, list[Payment]] = defaultdict(list)
    for payment in payments:
        if payment.charge is not None:
            by_card[payment.charge].append(payment)
    for charge in charges:
        if not charge.reference.startswith(f"{tenant.name}/"):
            continue
        entered = [payment.amount for payment in by_card.pop(charge.id, [])]
        # What was reserved and never captured is not taken, and expires.
        if entered != ([charge.captured] if charge.captured else []):
            yield f"the card charge {charge.id} took {charge.captured}, and the payments for it are {entered}"
    for unknown in by_card:
        yield f"there is a payment for {unknown}, which the card provider does not know"


if __name__ == "__main__":
    from examples.erp.app import create_app
    from examples.erp.database import db

    with create_app().app_context():
        found = audit(db.engine, Path("provider.db"))
    for name, sentences in found.items():
        print(*(f"{name}: {sentence}" for sentence in sentences or ["the books agree"]), sep="\n")
    sys.exit(any(found.values()))
