"""A small payments API and its guard: what an application needs, and nothing else.

The API is written as if every request came once.  Repeated requests are the guard's concern.
"""

import json
from collections.abc import Iterable
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard, scopes, wsgi
from retrysafe._core.model import Parts
from retrysafe.demo.ledger import CardNetwork, Charge
from retrysafe.events import Observer


def make_guard(store: str, *, shop: str | None, lease: float, on_event: Observer) -> Guard:
    # In front of a real API, a gateway has authenticated the customer and set this header.
    customer = scopes.header("X-Customer")
    scope = customer if shop is None else scopes.all_of(lambda _request: {"shop": shop}, customer)
    guard = Guard(store, scope=scope, lease=lease, on_event=on_event)
    guard.check()  # a store that cannot be used is reported now, and not by the first payment
    return guard


def parts_of(shop: str | None) -> Parts:
    """What all keys of a shop have in their scope, where its store is not its own."""
    return () if shop is None else (("shop", shop),)


def make_api(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """The API behind its guard.  Requests without a key pass untouched, as those of the first run do."""
    return wsgi.Middleware(payments(cards), guard, paths=["/payments"])


def payments(cards: CardNetwork) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ["REQUEST_METHOD"], environ["PATH_INFO"]:
            case "POST", "/payments":
                status, document = pay(cards, environ)
            case "GET", "/ledger":
                status, document = "200 OK", [charge._asdict() for charge in cards.ledger.charges()]
            case _:
                status, document = "404 Not Found", {"error": "there are POST /payments and GET /ledger"}
        body = as_json(document)
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return app


def pay(cards: CardNetwork, environ: WSGIEnvironment) -> tuple[str, object]:
    """Charge a card.  The form says what for: `order=coffee&cents=320`."""
    customer = environ.get("HTTP_X_CUSTOMER", "")
    try:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        order, cents, seconds = form["order"], int(form["cents"]), float(form.get("seconds", "0"))
    except (KeyError, ValueError):
        order, cents, seconds = "", 0, 0.0
    if not (customer and order and cents > 0 and 0 <= seconds <= 60):
        expected = "the header X-Customer, and a form such as order=coffee&cents=320 (&seconds=0 to 60)"
        return "400 Bad Request", {"error": f"expected {expected}"}
    return "201 Created", receipt(cards.charge(customer, order, cents, seconds))


def receipt(charge: Charge) -> dict[str, object]:
    """The body of the response to a payment."""
    return {"receipt": charge.receipt, "order": charge.order, "cents": charge.cents}


def as_json(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"
