"""Orders, as views in classes."""

from flask import Blueprint
from flask.typing import ResponseReturnValue
from flask.views import MethodView

from examples.erp import bills, fields
from examples.erp.database import db
from retrysafe.flask import idempotent

orders = Blueprint("orders", __name__, url_prefix="/orders")


class Orders(MethodView):
    @idempotent
    def post(self) -> ResponseReturnValue:
        """Have goods leave the warehouse."""
        order = bills.enter(
            "order", fields.text("reference"), fields.quantities("items"), fields.text("remarks", "")
        )
        db.session.commit()
        return bills.show(order), 201


class Order(MethodView):
    def get(self, number: int) -> ResponseReturnValue:
        return bills.show(bills.find(number))

    @idempotent
    def patch(self, number: int) -> ResponseReturnValue:
        """Order more."""
        order = bills.find(number, to_change=True)
        bills.extend(order, fields.text("reference"), fields.quantities("items"))
        db.session.commit()
        return bills.show(order)


orders.add_url_rule("", view_func=Orders.as_view("orders"))
orders.add_url_rule("/<int:number>", view_func=Order.as_view("order"))
