"""What the audit notices."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine, orm

from examples.orders import provider
from examples.orders.audit import audit
from examples.orders.models import Item, Order, Product
from examples.orders.setup import fill


def test_what_it_notices(tmp_path: Path) -> None:
    """An order that was written twice, stock that is gone, money that was never taken, or for nothing."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    fill(engine)
    books = tmp_path / "provider.db"
    with closing(sqlite3.connect(books)) as charges, charges:
        charges.executescript(provider.BOOKS)
        charges.execute("INSERT INTO charges (id, amount, captured) VALUES ('paid', 6, 6), ('lost', 3, 3)")
    with orm.Session(engine) as session:
        for charge in ("paid", "unpaid"):
            items = [Item(product="apples", quantity=2)]
            session.add(Order(customer="ann", cart="one", total=6, charge=charge, items=items))
        session.merge(Product(name="apples", price=3, stock=998))
        session.commit()
    assert audit(engine, books) == [
        "the cart one was ordered 2 times",
        "998 apples are left of 1000, and 4 sold",
        "order 2: charged, captured and refunded should be [6, 6, 0], and are None",
        "lost was captured, and there is no order for it",
    ]
    engine.dispose()
