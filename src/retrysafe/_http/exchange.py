"""One guarded HTTP exchange, whatever carries it: what was asked, what is held back, what is sent.

Sans-IO: an adapter pushes in what arrives and sends out what it is given.  It holds the response until the
protocol says that it is durable.  It decides nothing.
"""

import re
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Literal

from retrysafe import scopes
from retrysafe._core import headers, protocol, tokens
from retrysafe._core.fingerprint import fingerprint
from retrysafe._core.model import Claim, Door, Header, Headers, Record, Request, Response, make
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Flow, Outcome, Raised, Responded, Result, Run, Streamed, TooLarge
from retrysafe._http.body import EMPTY, Spool, Whole
from retrysafe._http.render import describe, problem_status, render, replay_status
from retrysafe._http.routes import Route

_USABLE_ID = re.compile(rb"[!-~]{1,128}")  # fit for logs and headers; anything else is replaced

Stage = Literal["held", "flowing", "discarded"]
"""Where the response goes: it is held; it goes out as it comes; it goes nowhere, another attempt's counts."""


class IncompleteResponse(Exception):
    """A response that was not, or must not be, brought to its end."""


class Exchange:
    """What ASGI and WSGI share of a request.  An adapter's request is one, and does its input and output."""

    # Defaults of the class, because most requests leave most of them as they are.
    claim: Claim | None = None
    door: Door = "request"
    waits = 'its effects are committed: give this route effects="outside", or stream by another route'
    """For what a response waits that may not flow."""
    source = ""
    body: Spool | Whole = EMPTY
    stage: Stage = "held"
    head: Response | None = None
    opening: Response | None = None
    """The head of a response that may flow, until it is sent."""
    background = 0.0
    """For how many seconds the client waited after the last byte of the application's response."""
    is_complete = False
    _held: list[bytes]
    """Pieces of the response, once it has started."""
    _storable: Headers = ()
    _streams = False
    _size = 0
    _expected: int | None = None
    _complete_at = 0.0
    _spooled: Spool | None = None
    """A body that may not leave before its effects are committed, and is too large to be held in memory."""
    _responded: Response | None = None

    def __init__(self, request: Request, route: Route) -> None:
        self.request = request
        self.route, _, self.rules = route
        sent = request.fields.get(self.rules.names.request_id)
        self.request_id = (usable_id(sent) if sent else None) or tokens.draw().hex()

    # --- flows

    def respond(self, draining: protocol.Draining, secret: bytes) -> Flow[Result]:
        """The flow of this request, from its head to what its client is sent."""
        request, rules = self.request, self.rules
        sent = request.fields.get(rules.names.correlation)
        return protocol.respond(
            request,
            rules,
            lambda problem: describe(request, rules, problem),
            tokens.draw(),
            self.request_id,
            usable_id(sent) if sent else None,
            draining,
            secret,
        )

    def let_flow(self, run: Run) -> Flow[None]:
        """Ask whether what cannot be held may leave, and how it begins."""
        assert self.head is not None
        result = yield from protocol.let_flow(run.call, run.attempt, self.head)
        self.opening = self.render(result) if result is not None else None
        self.stage = "flowing" if result is not None else "discarded"

    # --- for observers

    @property
    def action(self) -> str:
        return self.request.method

    @property
    def target(self) -> str:
        return self.request.path

    def owner(self) -> str:
        return scopes.describe(self.rules.request.scope)

    def status(self, result: Result) -> int | None:
        """What the client is sent."""
        match result.reply:
            case None:
                return None
            case Problem() as problem:
                return problem_status(problem, self.rules)
            case Record() as record:
                return replay_status(record, self.rules) if record.response else None
            case response:
                return response.status

    # --- the request's body

    def announced(self) -> TooLarge | None:
        """Whether the request says itself that its body is too large, before any of it is read."""
        said = self.request.fields.get(b"content-length")
        limit = self.rules.request.max_request
        if said is None or (len(said) < 7 and limit >= 1_000_000):
            return None
        return TooLarge(limit) if (headers.length(said) or 0) > limit else None

    def take(self, chunk: bytes, *, last: bool, limit: int | None = None) -> TooLarge | None:
        """Take a piece of the body, up to `limit`: that of the rules, where they are those of the route."""
        body, size = self.body, len(chunk)
        if limit is None:
            limit = self.rules.request.max_request
        if body.size + size > limit:
            return TooLarge(limit)
        if type(body) is Spool:
            body.add(chunk)
        elif last:
            self.body = make(Whole, (chunk, size))
        else:
            self.body = Spool(chunk)
        return None

    def copied(self) -> bytes:
        """What has been read of the body."""
        return b"".join(self.body.chunks())

    def takes_long(self) -> bool:
        """Whether the fingerprint of a large body had better be taken in a thread."""
        return self.body.on_disk or self.rules.request.fingerprint != "raw"

    def fingerprint(self) -> bytes:
        return fingerprint(self.rules.request.fingerprint, self.request, self.body)

    def close(self) -> None:
        """The call is over: give back disk space, unless the application may still be reading it."""
        body = self.body
        if type(body) is Spool and body.on_disk and self.rules.request.background == "before":
            body.close()

    # --- the handler's response

    def start(self, status: int, sent: Iterable[tuple[bytes, bytes]] | Sequence[Header]) -> None:
        """Take the head.  What no server could send is refused here, and so is the handler's failure."""
        if self.head is not None:
            raise RuntimeError("the application started a second response")
        if not 200 <= status <= 599:
            raise ValueError(f"the application responded with the status {status}: expected 200 to 599")
        every, self._storable, length, self._streams = headers.sort(sent, self.rules.outcome.drop_headers)
        if self._streams and self._is_undoable():
            raise ValueError(
                "the application responded with an event stream, which would have to leave before "
                + self.waits
            )
        self._held = []
        self.head = make(Response, (int(status), every, b""))
        if length is not None and status not in (204, 304):
            self._expected = length

    def hold(self, chunk: bytes | bytearray | memoryview, *, last: bool) -> bool:
        """Take a piece of the response.  True: hold it.  False: send what is held, it has to flow.

        A client that has seen the end of a response may ask for it again at once, so what completes the
        response is held until it is durable, even where everything before it has flowed.
        """
        if self.head is None:
            raise RuntimeError("the application sent a body before it started a response")
        piece = chunk if type(chunk) is bytes else bytes(chunk)  # a buffer may be used again
        self._size += len(piece)
        if self._spooled is not None:
            self._spooled.add(piece)
        else:
            self._held.append(piece)
        if last:
            self.is_complete = True
            self._complete_at = monotonic()
        expected = self._expected
        if expected is not None and self._size >= expected:
            if self._size > expected:
                raise RuntimeError(f"the application sent more than the {expected} bytes it announced")
            return True
        return last or (self.stage == "held" and self._may_be_held())

    def _may_be_held(self) -> bool:
        if self._is_undoable():
            if self._size > self.rules.outcome.max_response:
                self._spool()
            return True
        return self._size <= self.rules.outcome.max_response and not self._streams

    def _is_undoable(self) -> bool:
        return self.rules.policy.effects == "database"

    def _spool(self) -> None:
        """Move what is held to where there is room for more."""
        if self._spooled is None:
            self._spooled = Spool()
            for piece in self._held:
                self._spooled.add(piece)
            self._held.clear()

    def spooled(self, result: Result) -> Iterable[bytes] | None:
        """The body of this result's response, if it was too large to be held with its head."""
        if self._spooled is not None and result.reply is self._responded:
            return self._spooled.chunks()
        return None

    def pour(self) -> bytes:
        """All that is held, which is then held no longer."""
        poured = b"".join(self._held)
        self._held.clear()
        return poured

    def outcome(self, error: Exception | None = None) -> Outcome:
        """What came of the handler, once it has returned or raised."""
        if self.is_complete:
            if self.rules.request.background == "before":
                self.background = monotonic() - self._complete_at
        elif error is None:
            error = IncompleteResponse("the application returned without completing its response")
        if error is None and self._expected is not None and self._size < self._expected:
            error = IncompleteResponse(f"{self._expected} bytes were announced and {self._size} were sent")
        head = self.head
        if head is None:
            return Raised(error or IncompleteResponse("the application sent no response"))
        if self.stage != "held":
            return Streamed(head, error)
        status, sent, _ = head
        response = self._responded = make(Response, (status, sent, b"".join(self._held)))
        self._held.clear()
        if error is not None:
            return Raised(error, response if self.is_complete and status >= 500 else None)
        return make(Responded, (response, self._spooled is not None or self._streams, self._storable))

    # --- what the client is sent

    def render(self, result: Result) -> Response | None:
        """The result as it goes out.  `None`: it was sent already, or no client is left."""
        return render(result, self.request, self.rules, self.request_id)

    def error_after(self, result: Result) -> Exception:
        """What is raised instead of the response's end: the handler's error, or why it must not be sent."""
        return result.error or IncompleteResponse(
            "the response was broken off before its end, because its outcome could not be stored"
        )


def usable_id(sent: bytes) -> str | None:
    return sent.decode("ascii") if _USABLE_ID.fullmatch(sent) else None
