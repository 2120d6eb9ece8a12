"""The audit finds what is wrong: without that, books that agree would say nothing."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, orm, update

from examples.erp.audit import audit
from examples.erp.models import Bill, Line, Movement, Payment, Stock
from examples.erp.setup import fill
from examples.orders import provider

NORTH = 1


def enter_sale(session: orm.Session, receipt: str, *, charge: str | None = None) -> Bill:
    """One apple for 3, paid."""
    bill = Bill(tenant_id=NORTH, user_id=1, kind="sale", reference=receipt, remarks="", total=3)
    bill.lines = [Line(reference=receipt, product="apples", quantity=1, price=3)]
    bill.payments = [Payment(tenant_id=NORTH, user_id=1, receipt=receipt, amount=3, charge=charge)]
    session.add(bill)
    session.flush()
    move(session, "sale", receipt, "shop", -1, bill.id)
    return bill


def move(session: orm.Session, reason: str, reference: str, place: str, count: int, bill: int | None) -> None:
    where = {"tenant_id": NORTH, "place": place, "product": "apples"}
    session.add(Movement(**where, quantity=count, reason=reason, reference=reference, bill_id=bill))
    shelf = update(Stock).where(Stock.tenant_id == NORTH, Stock.place == place, Stock.product == "apples")
    session.execute(shelf.values(on_hand=Stock.on_hand + count))


def nothing_wrong(session: orm.Session) -> None:
    enter_sale(session, "r1")
    enter_sale(session, "r2", charge="ch_1")
    move(session, "transfer", "t1", "warehouse", -5, None)
    move(session, "transfer", "t1", "shop", 5, None)


def a_sale_twice(session: orm.Session) -> None:
    enter_sale(session, "r1")
    enter_sale(session, "r1")
    enter_sale(session, "r2", charge="ch_1")


def a_payment_twice(session: orm.Session) -> None:
    bill = enter_sale(session, "r2", charge="ch_1")
    bill.payments.append(Payment(tenant_id=NORTH, user_id=1, receipt="r2", amount=3, charge="ch_1"))


def a_transfer_twice(session: orm.Session) -> None:
    enter_sale(session, "r2", charge="ch_1")
    for _ in range(2):
        move(session, "transfer", "t1", "warehouse", -5, None)
        move(session, "transfer", "t1", "shop", 5, None)


def half_a_transfer(session: orm.Session) -> None:
    enter_sale(session, "r2", charge="ch_1")
    move(session, "transfer", "t1", "warehouse", -5, None)


def a_change_twice(session: orm.Session) -> None:
    bill = enter_sale(session, "r2", charge="ch_1")
    bill.lines.append(Line(reference="r2", product="apples", quantity=1, price=3))


def stock_that_is_gone(session: orm.Session) -> None:
    enter_sale(session, "r2", charge="ch_1")
    session.execute(update(Stock).where(Stock.tenant_id == NORTH, Stock.place == "shop").values(on_hand=7))


def money_for_nothing(_: orm.Session) -> None:
    """The provider has taken it, and there is no payment."""


def a_charge_that_is_not_there(session: orm.Session) -> None:
    enter_sale(session, "r2", charge="ch_1")
    enter_sale(session, "r3", charge="ch_9")


FINDINGS: dict[Callable[[orm.Session], None], list[str]] = {
    nothing_wrong: [],
    a_sale_twice: ["sale r1 was entered 2 times", "the payment r1 was entered 2 times"],
    a_payment_twice: [
        "the payment r2 was entered 2 times",
        "sale 1: 6 was paid, and 3 owed",
        "the card charge ch_1 took 3, and the payments for it are [3, 3]",
    ],
    a_transfer_twice: [
        "transfer t1 moved apples in the warehouse 2 times",
        "transfer t1 moved apples in the shop 2 times",
    ],
    half_a_transfer: ["transfer t1: 5 apples left, and did not arrive"],
    a_change_twice: [
        "bill 1: r2 has apples 2 times",
        "sale 1: it has {'apples': 2}, and {'apples': 1} left the stock",
        "sale 1: its total is 3, and its lines cost 6",
    ],
    stock_that_is_gone: [
        "7 apples are in the shop, and by its movements 999",
        "7 bread are in the shop, and by its movements 1000",
        "7 cheese are in the shop, and by its movements 1000",
    ],
    money_for_nothing: ["the card charge ch_1 took 3, and the payments for it are []"],
    a_charge_that_is_not_there: ["there is a payment for ch_9, which the card provider does not know"],
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which nothing was sold yet."""
    path = tmp_path_factory.mktemp("erp") / "erp.db"
    engine = create_engine(f"sqlite:///{path}")
    fill(engine)
    engine.dispose()
    return path


@pytest.mark.parametrize("enter", FINDINGS, ids=lambda enter: enter.__name__)
def test_what_it_finds(tmp_path: Path, filled: Path, enter: Callable[[orm.Session], None]) -> None:
    """In the books of the tenant whose they are."""
    shutil.copy(filled, tmp_path / "erp.db")
    engine = create_engine(f"sqlite:///{tmp_path}/erp.db")
    books = tmp_path / "provider.db"
    with closing(sqlite3.connect(books)) as charges, charges:
        charges.executescript(provider.BOOKS)
        charge = "INSERT INTO charges (id, reference, amount, captured) VALUES (?, ?, 3, ?)"
        # The second one was reserved and never captured, so it is not taken.
        charges.executemany(charge, [("ch_1", "north/r2", 3), ("ch_2", "north/r4", 0)])
    with orm.Session(engine) as session:
        enter(session)
        session.commit()
    assert audit(engine, books) == {"north": FINDINGS[enter], "south": []}
    engine.dispose()
