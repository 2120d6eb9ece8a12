"""The payments API, broken on purpose: a demo that cannot fail shows nothing.

python sabotaged.py BUG FOLDER …      the rest as for `retrysafe.demo.server`
"""

import sys
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard, wsgi
from retrysafe.demo.api import payments
from retrysafe.demo.ledger import CardNetwork, Charge
from retrysafe.demo.server import main


def unguarded(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """Keys are ignored."""
    return payments(cards)


def repeatable(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """It is wrongly believed that charging a card twice does no harm."""
    routes = {"/payments": {"effects": "repeatable"}}
    return wsgi.Middleware(payments(cards), guard, paths=["/payments"], routes=routes)  # type: ignore[arg-type]


def lossy(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """One payment is acknowledged and never made."""

    class Lossy(CardNetwork):
        def charge(self, customer: str, order: str, cents: int, seconds: float) -> Charge:
            if order == "order-20":
                return Charge("r-invented", customer, order, cents)
            return cards.charge(customer, order, cents, seconds)

    return wsgi.Middleware(payments(Lossy(cards.ledger, lambda *_: None)), guard, paths=["/payments"])


def wrong_receipt(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """One customer gets the wrong receipt."""
    app = wsgi.Middleware(payments(cards), guard, paths=["/payments"])

    def swapped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        for part in app(environ, start_response):
            yield part.replace(b'"r-', b'"x-') if b"order-20" in part else part

    return swapped


def not_starting(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """It does not even start."""
    raise SystemExit("the card network has moved")


BUGS = {bug.__name__: bug for bug in (unguarded, repeatable, lossy, wrong_receipt, not_starting)}

if __name__ == "__main__":
    main(BUGS[sys.argv.pop(1)])
