"""Holds the shop's books against the provider's: `python -m examples.orders.audit`.

Whatever was killed, cut off and sent again: each cart was ordered once, stock and orders agree, and each
order was paid once.
"""

import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, func, orm, select

from examples.orders.models import Instruction, Item, Order, Product
from examples.orders.setup import SHELVES


def audit(engine: Engine, books: Path) -> list[str]:
    """What does not add up, in sentences.  Instructions that are still to be delivered are not there yet."""
    with orm.Session(engine) as session, closing(sqlite3.connect(books)) as provider:
        return [*_carts(session), *_stock(session), *_payments(session, provider)]


def _carts(session: orm.Session) -> Iterator[str]:
    ordered = Counter(session.scalars(select(Order.cart)))
    for cart, times in ordered.items():
        if times > 1:
            yield f"the cart {cart} was ordered {times} times"


def _stock(session: orm.Session) -> Iterator[str]:
    sold = select(Item.product, func.sum(Item.quantity).label("sold")).join(Order)
    found = session.execute(sold.where(Order.state == "placed").group_by(Item.product))
    out: dict[str, int] = {row.product: row.sold for row in found}
    for product in session.scalars(select(Product)):
        _, had = SHELVES[product.name]
        gone = out.get(product.name, 0)
        if product.stock != had - gone:
            yield f"{product.stock} {product.name} are left of {had}, and {gone} sold"


def _payments(session: orm.Session, provider: sqlite3.Connection) -> Iterator[str]:
    charges = {
        id: money for id, *money in provider.execute("SELECT id, amount, captured, refunded FROM charges")
    }
    pending = set(session.scalars(select(Instruction.charge).where(~Instruction.sent)))
    for order in session.scalars(select(Order)):
        paid = charges.pop(order.charge, None)
        owed = [order.total, order.total, order.total if order.state == "cancelled" else 0]
        if order.charge not in pending and paid != owed:
            yield f"order {order.id}: charged, captured and refunded should be {owed}, and are {paid}"
    for id, (_, captured, refunded) in charges.items():
        if captured or refunded:
            yield f"{id} was captured, and there is no order for it"


if __name__ == "__main__":
    from examples.orders.database import engine

    found = audit(engine, Path("provider.db"))
    print(*found or ["the books agree"], sep="\n")
    sys.exit(bool(found))
