"""What sales and orders have in common: goods leave a place, and a customer owes their price."""

from typing import Any, Literal

from flask import abort
from sqlalchemy import select

from examples.erp.auth import me
from examples.erp.database import db
from examples.erp.models import Bill, Line, Movement, Place, Product
from examples.erp.stock import move

_PLACES: dict[Literal["sale", "order"], Place] = {"sale": "shop", "order": "warehouse"}


def enter(kind: Literal["sale", "order"], reference: str, items: dict[str, int], remarks: str = "") -> Bill:
    user = me()
    bill = Bill(
        tenant_id=user.tenant_id,
        user_id=user.id,
        kind=kind,
        reference=reference,
        remarks=remarks,
        total=0,
        lines=[],
        payments=[],
    )
    db.session.add(bill)
    extend(bill, reference, items)
    return bill


def extend(bill: Bill, reference: str, items: dict[str, int]) -> None:
    """Put more goods on a bill; 404 for what is not sold, 409 for what is not there."""
    sold = select(Product).where(Product.tenant_id == bill.tenant_id, Product.name.in_(items))
    prices = {product.name: product.price for product in db.session.scalars(sold)}
    if unknown := sorted(items.keys() - prices):
        abort(404, f"there is no {', '.join(unknown)}")
    db.session.flush()  # the bill has its number now
    movements: list[Movement] = []
    for product, count in items.items():
        bill.lines.append(Line(reference=reference, product=product, quantity=count, price=prices[product]))
        bill.total += prices[product] * count
        movements.append(
            Movement(
                tenant_id=bill.tenant_id,
                place=_PLACES[bill.kind],
                product=product,
                quantity=-count,
                reason=bill.kind,
                reference=reference,
                bill_id=bill.id,
            )
        )
    move(*movements)


def find(number: int, *, to_change: bool = False) -> Bill:
    """A bill of the user's own tenant; 404 for any other."""
    mine = select(Bill).where(Bill.id == number, Bill.tenant_id == me().tenant_id)
    bill = db.session.scalar(mine.with_for_update() if to_change else mine)
    return bill or abort(404, f"there is no bill {number}")


def show(bill: Bill) -> dict[str, Any]:
    return {
        "number": bill.id,
        "reference": bill.reference,
        "items": [{"product": line.product, "quantity": line.quantity} for line in bill.lines],
        "total": bill.total,
        "paid": sum(payment.amount for payment in bill.payments),
        "remarks": bill.remarks,
    }
