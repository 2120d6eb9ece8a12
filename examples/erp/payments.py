"""Payments, in cash or by card."""

from flask import Blueprint
from flask.typing import ResponseReturnValue

from examples.erp import bills, cards, fields
from examples.erp.auth import me
from examples.erp.database import db
from examples.erp.models import Bill, Payment
from retrysafe import current
from retrysafe.flask import idempotent

payments = Blueprint("payments", __name__, url_prefix="/payments")


@payments.post("/cash")
@idempotent
def by_cash() -> ResponseReturnValue:
    payment = pay(bills.find(fields.number("bill")), fields.text("receipt"), fields.number("amount"))
    db.session.commit()
    return show(payment), 201


# The money is moved elsewhere, so this cannot be undone: `effects="outside"`.  Not `"repeatable"`, although
# the provider takes a key: run again after its commit, this would enter the payment a second time.
@payments.post("/card")
@idempotent(effects="outside", required=True)
def by_card() -> ResponseReturnValue:
    bill, receipt, amount = fields.number("bill"), fields.text("receipt"), fields.number("amount")
    found = bills.find(bill)
    try:
        charge = cards.charge(amount, f"{me().tenant.name}/{receipt}", current().derive("charge"))
    except cards.Declined:
        return {"error": "the card was declined"}, 402
    payment = pay(found, receipt, amount, charge)
    db.session.commit()
    return show(payment), 201


def pay(bill: Bill, receipt: str, amount: int, charge: str | None = None) -> Payment:
    user = me()
    payment = Payment(
        tenant_id=user.tenant_id, user_id=user.id, receipt=receipt, amount=amount, charge=charge
    )
    bill.payments.append(payment)
    return payment


def show(payment: Payment) -> dict[str, object]:
    return {
        "payment": payment.id,
        "bill": payment.bill_id,
        "receipt": payment.receipt,
        "amount": payment.amount,
        "by": "card" if payment.charge else "cash",
    }
