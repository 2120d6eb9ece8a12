"""Point of sale."""

from flask import Blueprint
from flask.typing import ResponseReturnValue

from examples.erp import bills, fields
from examples.erp.database import db
from examples.erp.payments import pay
from retrysafe.flask import idempotent

pos = Blueprint("pos", __name__, url_prefix="/pos")


@pos.post("/sales")
@idempotent
def sell() -> ResponseReturnValue:
    """The goods leave the shop.  Cash is paid at once, a card afterwards."""
    sale = bills.enter("sale", fields.text("receipt"), fields.quantities("items"))
    if fields.flag("cash"):
        pay(sale, sale.reference, sale.total)
    db.session.commit()
    return bills.show(sale), 201
