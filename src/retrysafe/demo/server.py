"""A small payments API, guarded: a plain WSGI application in a process of its own.

    python -m retrysafe.demo.server FOLDER [--port N] [--lease SECONDS] [--hold before:ORDER]…

`build` is all that an application needs; the rest starts it, counts what arrives, and ends it.  In FOLDER are
the keys (`keys.db`), the card network's books (`ledger.jsonl`) and a count of what happened (`journal`).
"""

import json
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import Guard, scopes, wsgi
from retrysafe.demo.ledger import CardNetwork, Charge, Ledger

Reply = tuple[str, object]
"""A status line, and what goes into the body as JSON."""


def build(cards: CardNetwork, guard: Guard) -> WSGIApplication:
    """The API behind its guard: this line is the whole difference between the two columns of the demo."""
    return wsgi.Middleware(payments(cards), guard, paths=["/payments"])


def payments(cards: CardNetwork) -> WSGIApplication:
    """The API itself, written as if every request came once."""

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


def pay(cards: CardNetwork, environ: WSGIEnvironment) -> Reply:
    """Charge a card.  The form says what for: `order=coffee&cents=320`."""
    form = parse_qs(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode())
    order = form.get("order", [""])[0]
    customer = environ.get("HTTP_X_CUSTOMER", "")
    try:
        cents, seconds = int(form.get("cents", [""])[0]), float(form.get("seconds", ["0"])[0])
    except ValueError:
        cents, seconds = 0, 0.0
    if not (order and customer and cents > 0 and 0 <= seconds <= 60):
        wanted = "expected the header X-Customer and a form such as order=coffee&cents=320 (&seconds=0 to 60)"
        return "400 Bad Request", {"error": wanted}
    return "201 Created", receipt(cards.charge(customer, order, cents, seconds))


def receipt(charge: Charge) -> dict[str, object]:
    """What the customer is told about a charge."""
    return {"receipt": charge.receipt, "order": charge.order, "cents": charge.cents}


def as_json(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


# --- Starting, counting, ending --------------------------------------------------------------------------


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = False  # what runs when the server is asked to end comes to its end
    request_queue_size = 128  # a crowd must not be turned away by the kernel


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """The journal says it all."""


class Journal:
    """One line per request that arrives and per verdict of the guard; it survives the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(self, word: str) -> None:
        self._file.write(word.encode() + b"\n")

    def counting(self, app: WSGIApplication) -> WSGIApplication:
        def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "POST":
                self.note("arrived")
            return app(environ, start_response)

        return counted


def main(build: Callable[[CardNetwork, Guard], WSGIApplication] = build) -> None:
    options = _parse()
    folder: Path = options.folder
    journal = Journal(folder / "journal")
    never = threading.Event()

    def meanwhile(order: str, moment: str) -> None:
        if f"{moment}:{order}" in options.hold:
            never.wait()

    guard = Guard(
        f"sqlite:///{folder / 'keys.db'}",
        # Whatever stands in front of a real API has authenticated the customer.
        scope=scopes.header("X-Customer"),
        lease=options.lease,
        on_event=lambda event: journal.note(event.verdict),
    )
    guard.check()  # a store that cannot be used is said to be so now, and not with the first payment
    app = build(CardNetwork(Ledger(folder / "ledger.jsonl"), meanwhile), guard)
    with Server(("127.0.0.1", options.port), Quiet) as server:
        server.set_app(journal.counting(app))
        threading.Thread(target=_end_with_parent, args=[server], daemon=True).start()
        sys.stdout.write(f"ready {server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.05)
    guard.drain(grace=1.0)
    guard.close()


def _end_with_parent(server: Server) -> None:
    """Whoever started us holds the other end of our standard input: that closes when they end, however."""
    sys.stdin.buffer.read()
    server.shutdown()


def _parse() -> Namespace:
    parser = ArgumentParser(prog="python -m retrysafe.demo.server", description="A small payments API.")
    parser.add_argument("folder", type=Path, help="where the keys, the ledger and the journal are")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds until a dead server is noticed")
    parser.add_argument(
        "--hold", action="append", default=[], metavar="WHEN:ORDER", help="before or after its charge"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
