"""What the sender of a callback is told, and what its HTTP exchanges have in common.

A first delivery gets the handler's own response.  Each later one gets an acknowledgement that says so, once
the event has been handled; before that it is refused, so that it comes again.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from json import dumps
from typing import TYPE_CHECKING, Any

from retrysafe._core import headers, protocol, tokens
from retrysafe._core.model import Claim, Door, Record, Request, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Delivery, Flow, Result
from retrysafe._http.exchange import Exchange
from retrysafe._http.render import describe
from retrysafe.callbacks.handling import check_signature
from retrysafe.callbacks.payload import Payload
from retrysafe.callbacks.webhooks import PayloadInvalid
from retrysafe.policy import Rules

if TYPE_CHECKING:
    from retrysafe.callbacks.receipts import Receipts

PROCESSED = {"message": "Callback processed", "idempotent_replayed": False}
"""What a first delivery gets whose handler returns nothing."""

ACCEPTED = "Callback accepted"
"""What is said of a delivery whose payload is stored, and not handled yet."""


class CallbackExchange(Exchange):
    """An exchange that may be a delivery, whatever carries it.  `claim_key` of an adapter claims its event.

    Until `begin_delivery` it is a request like any other: its path may lead to another endpoint in the end,
    which claims its key.
    """

    receipts: "Receipts[Any]"
    delivery: Delivery | None = None
    waits = "the event is known to have been handled: respond with something that is not a stream"

    def begin_delivery(self, receipts: "Receipts[Any]", delivery: Delivery) -> None:
        self.door: Door = "callback"
        self.receipts = receipts
        self.delivery = delivery
        self.source = receipts.name

    def respond(self, draining: protocol.Draining, secret: bytes) -> Flow[Result]:
        if self.delivery is None:
            return super().respond(draining, secret)
        request, rules = self.request, self.receipts.rules
        return protocol.receive(
            self.delivery,
            rules,
            self.receipts.callback,
            lambda problem: describe(request, rules, problem),
            tokens.draw(),
            draining,
            secret,
        )

    @property
    def action(self) -> str:
        return super().action if self.delivery is None else self.receipts.name

    @property
    def target(self) -> str:
        return super().target if self.delivery is None else self.delivery.subject

    def owner(self) -> str:
        return super().owner() if self.delivery is None else f"the source of {self.receipts!r}"

    def status(self, result: Result) -> int | None:
        if self.delivery is None:
            return super().status(result)
        response = self.render(result)
        return response.status if response is not None else None

    def _is_undoable(self) -> bool:
        # Of its response nothing leaves before it is known that the event was handled, however long it is.
        return self.delivery is not None or super()._is_undoable()

    def render(self, result: Result) -> Response | None:
        if self.delivery is None:
            return super().render(result)
        return response_to(result, self.request, self.receipts, self.request_id)


def response_to(
    result: Result, request: Request, receipts: "Receipts[Any]", request_id: str
) -> Response | None:
    """What is sent to the sender; `None`: no sender is left."""
    rules = receipts.rules
    reply = result.reply
    match reply:
        case Record(state="failed") if result.verdict == "replayed":
            detail = "An earlier delivery of this event failed, and it is not handled again."
            response = describe(request, rules, Problem("previously-failed", detail))
        case Record() if result.verdict == "waiting":
            response = _acknowledged(202, ACCEPTED, reply, rules)
        case Record():
            response = _acknowledged(200, receipts.message, reply, rules)
        case Problem():
            response = describe(request, rules, reply)
        case _ if result.verdict == "accepted":
            response = _document(202, {"message": ACCEPTED, "idempotent_replayed": False})
        case None:
            return None
        case _ if result.verdict == "unstored":
            # It was handled, and the next delivery handles it again: no record says that it was.
            detail = "That the event was handled could not be stored."
            response = describe(request, rules, Problem("store-unavailable", detail))
        case _:
            response = reply
            if not result.stored:
                response = _with(response, (rules.names.stored, b"false"))
    if headers.find(response.headers, rules.names.request_id) is None:
        response = _with(response, (rules.names.request_id, request_id.encode()))
    return response


def _acknowledged(status: int, message: str, record: Record, rules: Rules) -> Response:
    received = datetime.fromtimestamp(record.created_at, UTC).isoformat()
    response = _document(
        status, {"message": message, "idempotent_replayed": True, "original_received_at": received}
    )
    original = record.request_id.encode(errors="replace")
    response = _with(response, (rules.names.replayed, b"true"))
    return _with(response, (rules.names.original_id, original)) if headers.are_fit((), original) else response


def _document(status: int, document: Mapping[str, object]) -> Response:
    body = dumps(document).encode()
    return Response(
        status,
        (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ),
        body,
    )


def _with(response: Response, header: tuple[bytes, bytes]) -> Response:
    return response._replace(headers=(*response.headers, header))


def refuse(receipts: "Receipts[Any]", request: Request, problem: Problem, route: str) -> Response:
    """Refuse a delivery before anything is looked up, and count it."""
    exchange = _Refused(receipts, request, route)
    runtime = receipts.guard.runtime
    runtime.end(exchange, Result(problem.code, problem))
    sent = request.fields.get(receipts.rules.names.request_id, b"")
    made = response_to(
        Result(problem.code, problem), request, receipts, sent.decode("latin-1") or tokens.draw().hex()
    )
    assert made is not None, "a problem is sent"
    return made


class _Refused:
    """A delivery that came to no claim, for observers."""

    door: Door = "callback"
    claim: Claim | None = None
    background = 0.0

    def __init__(self, receipts: "Receipts[Any]", request: Request, route: str) -> None:
        self.action = self.source = receipts.name
        self.target = request.path
        self.route = route
        self._rules = receipts.rules

    def owner(self) -> str:
        return "the delivery"

    def status(self, result: Result) -> int | None:
        return self._rules.wire.status(result.reply.code) if isinstance(result.reply, Problem) else None

    def close(self) -> None:
        """Nothing: it holds nothing."""


def lower_headers(sent: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a delivery as its sender's preset reads them."""
    found: dict[str, str] = {}
    for name, value in sent:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def verified(receipts: "Receipts[Any]", payload: Payload) -> Problem | Response | None:
    """Check who sent this: a refusal, the response to the sender's own check of the endpoint, or `None`."""
    if (problem := check_signature(receipts, payload)) is not None:
        return problem
    webhook = receipts.webhook
    if webhook is None:
        return None
    try:
        challenge = webhook.challenge(payload.headers, payload.body)
    except PayloadInvalid as invalid:
        return Problem("payload-invalid", invalid.reason)
    if challenge is None:
        return None
    fields = ((b"content-type", b"text/plain"), (b"content-length", b"%d" % len(challenge)))
    return Response(200, fields, challenge)
