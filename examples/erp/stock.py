"""Stock: what is where, transfers between places, and counts."""

from typing import Literal

from flask import Blueprint, abort
from flask.typing import ResponseReturnValue
from sqlalchemy import select, update

from examples.erp import fields
from examples.erp.auth import me
from examples.erp.database import db
from examples.erp.models import Movement, Place, Stock
from retrysafe.flask import idempotent

stock = Blueprint("stock", __name__, url_prefix="/stock")


@stock.get("")
def show() -> ResponseReturnValue:
    found = db.session.scalars(select(Stock).where(Stock.tenant_id == me().tenant_id))
    return {f"{one.place}/{one.product}": one.on_hand for one in found}


@stock.post("/transfers")
@idempotent
def transfer() -> ResponseReturnValue:
    """From the warehouse to the shop."""
    document, items = fields.text("document"), fields.quantities("items")
    move(*(_movement("transfer", document, "shop", product, count) for product, count in items.items()))
    move(*(_movement("transfer", document, "warehouse", product, -count) for product, count in items.items()))
    db.session.commit()
    return {"document": document, "items": items}, 201


@stock.put("/<any(shop, warehouse):place>/<product>")
@idempotent
def count(place: Place, product: str) -> ResponseReturnValue:
    """Set what is there to what was counted.  Sent again later, it would undo what was sold since."""
    counted, document = fields.number("counted", least=0), fields.text("document")
    known = (Stock.tenant_id == me().tenant_id, Stock.place == place, Stock.product == product)
    before = db.session.scalar(select(Stock.on_hand).where(*known).with_for_update())
    if before is None:
        abort(404, f"there is no {product}")
    move(_movement("count", document, place, product, counted - before))
    db.session.commit()
    return {"document": document, "before": before, "counted": counted}


def _movement(
    reason: Literal["transfer", "count"], document: str, place: Place, product: str, quantity: int
) -> Movement:
    return Movement(
        tenant_id=me().tenant_id,
        place=place,
        product=product,
        quantity=quantity,
        reason=reason,
        reference=document,
    )


def move(*movements: Movement) -> None:
    """Change what is on hand, and write down why; 409 where there is not enough."""
    # Sorted, and the shop before the warehouse everywhere: two requests never wait for each other.
    for movement in sorted(movements, key=lambda one: one.product):
        found = (
            Stock.tenant_id == movement.tenant_id,
            Stock.place == movement.place,
            Stock.product == movement.product,
        )
        after = Stock.on_hand + movement.quantity
        changed = update(Stock).where(*found, after >= 0).values(on_hand=after)
        # MySQL returns no rows of an update: they are counted.
        if db.session.connection().execute(changed).rowcount == 0:
            abort(409, f"there is not enough {movement.product} in the {movement.place}")
        db.session.add(movement)
