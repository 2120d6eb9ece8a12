"""One guarded HTTP exchange, whatever carries it: what was asked, what is held back, what is told.

Sans-IO: an adapter pushes in what arrives and sends out what it is given.  It holds the response until the
protocol says that it is durable, and knows the wire: header names, replay markers, the address of a problem.
It decides nothing.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Literal

from retrysafe._core import headers, protocol, tokens
from retrysafe._core.attempt import Attempt
from retrysafe._core.fingerprint import fingerprint
from retrysafe._core.model import Claim, Header, Request, Response
from retrysafe._core.problems import Problem
from retrysafe._core.steps import Call, Flow, Outcome, Raised, Responded, Result, Streamed, TooLarge
from retrysafe._http.body import Spool
from retrysafe._http.render import describe, render
from retrysafe.policy import Rules

_USABLE_ID = re.compile(rb"[!-~]{1,128}")  # fit for logs and headers; anything else is replaced


Stage = Literal["held", "flowing", "overtaken"]
"""Where the response goes: it is held; it goes out as it comes; it goes nowhere, another one counts."""


class IncompleteResponse(Exception):
    """The application returned before its response was complete."""


class Exchange:
    # Defaults of the class, because most requests leave most of them as they are.
    head: Response | None = None
    stage: Stage = "held"
    opening: Response | None = None
    """The head of an answer that may flow, until it is sent."""
    background = 0.0
    """For how many seconds the application went on after the last byte of its response."""
    _call: Call | None = None
    _size = 0
    _expected: int | None = None
    is_complete = False
    _complete_at = 0.0
    _waiting: Spool | None = None
    """A body that may not leave before its effects are committed, and is too large to be held in memory."""
    _answered: Response | None = None

    def __init__(self, request: Request, rules: Rules) -> None:
        self.request = request
        self.rules = rules
        sent = request.fields.get(rules.names.request_id)
        self.request_id = (_usable_id(sent) if sent else None) or tokens.draw().hex()
        self.body = Spool()
        self._held: list[bytes] = []

    # --- flows

    def arrive(self) -> Flow[Claim | Result]:
        """From the head of the request to a claim, or an answer that needs none."""
        sent = self.request.fields.get(self.rules.names.correlation)
        correlation_id = _usable_id(sent) if sent else None
        return protocol.arrive(self.request, self.rules, tokens.draw(), self.request_id, correlation_id)

    def call(self, claim: Claim, draining: Callable[[], bool], secret: bytes) -> Call:
        """What the flow has to know about this exchange, once it has a claim."""
        rules = self.rules
        self._call = Call(claim, rules.policy, rules.request, self.describe, draining, secret)
        return self._call

    def drop_call(self) -> None:
        """It knows how we describe a problem and so refers back to us: a cycle that a collector would have
        to find."""
        self._call = None

    def let_flow(self, attempt: Attempt) -> Flow[None]:
        """Ask whether what cannot be held may leave, and how it begins."""
        assert self.head is not None and self._call is not None  # noqa: PT018 - a response that is running
        answer = yield from protocol.let_flow(self._call, attempt, self.head)
        self.opening = self.render(answer) if answer is not None else None
        self.stage = "flowing" if answer is not None else "overtaken"

    # --- the request's body

    def announced(self) -> TooLarge | None:
        """Whether the request says itself that its body is too large, before any of it is read."""
        said = self.request.fields.get(b"content-length")
        limit = self.rules.request.max_request
        return TooLarge(limit) if said is not None and (headers.length(said) or 0) > limit else None

    def take(self, chunk: bytes) -> TooLarge | None:
        limit = self.rules.request.max_request
        if self.body.size + len(chunk) > limit:
            return TooLarge(limit)
        self.body.add(chunk)
        return None

    def takes_long(self) -> bool:
        """Whether the fingerprint had better be taken where nobody else waits for it."""
        return self.body.on_disk or (self.body.size > 65536 and self.rules.request.fingerprint != "raw")

    def fingerprint(self) -> bytes:
        return fingerprint(self.rules.request.fingerprint, self.request, self.body)

    # --- the handler's response

    def start(self, status: int, sent: Sequence[Header]) -> None:
        """Take the head.  What no server could send is refused here, and so is the handler's failure."""
        if self.head is not None:
            raise RuntimeError("the application started a second response")
        if not 200 <= status <= 599:
            raise ValueError(f"the application answered with the status {status}: expected 200 to 599")
        pairs = tuple([(bytes(name).lower(), bytes(value)) for name, value in sent])
        if (name := headers.unfit(pairs)) is not None:
            # By its name only: the value may be a secret.
            raise ValueError(f"the application's header {name!r} has a character that no header may have")
        if self._is_undoable() and headers.is_event_stream(pairs):
            raise ValueError(
                "the application answered with an event stream, which would have to leave before its effects "
                'are committed: give this route effects="outside", or answer first and stream by another one'
            )
        self.head = Response(int(status), pairs)
        announced = dict(pairs).get(b"content-length")
        if announced is not None and status not in (204, 304):
            self._expected = headers.length(announced)

    def hold(self, chunk: bytes | bytearray | memoryview, *, last: bool) -> bool:
        """Take a piece of the response.  True: hold it.  False: pour out what is held, it has to flow.

        A client that has seen the end of an answer may ask for it again at once, so what completes the
        answer is held until it is durable, even where everything before it has flowed.
        """
        if self.head is None:
            raise RuntimeError("the application sent a body before it started a response")
        self._size += len(chunk)
        piece = bytes(chunk)  # a copy, if it is a buffer that will be used again
        if self._waiting is not None:
            self._waiting.add(piece)
        else:
            self._held.append(piece)
        if last:
            self.is_complete = True
            self._complete_at = monotonic()
        if self._expected is not None and self._size >= self._expected:
            if self._size > self._expected:
                raise RuntimeError(f"the application sent more than the {self._expected} bytes it announced")
            return True
        return last or (self.stage == "held" and self._may_be_held())

    def _may_be_held(self) -> bool:
        if self._is_undoable():
            if self._size > self.rules.request.max_response:
                self._set_aside()
            return True
        return self._size <= self.rules.request.max_response and not (
            self.head is not None and headers.is_event_stream(self.head.headers)
        )

    def _is_undoable(self) -> bool:
        return self.rules.policy.effects == "database"

    def _set_aside(self) -> None:
        """Move what is held to where there is room for more."""
        if self._waiting is None:
            self._waiting = Spool()
            for piece in self._held:
                self._waiting.add(piece)
            self._held.clear()

    def waiting(self, answer: Result) -> Iterable[bytes] | None:
        """The body of this answer, if it was too large to be held with its head."""
        if self._waiting is not None and answer.reply is self._answered:
            return self._waiting.chunks()
        return None

    def pour(self) -> bytes:
        """All that is held, which is then held no longer."""
        poured = b"".join(self._held)
        self._held.clear()
        return poured

    def outcome(self, error: Exception | None = None) -> Outcome:
        """What came of the handler, once it has returned or raised."""
        if self.is_complete:
            self.background = monotonic() - self._complete_at
        elif error is None:
            error = IncompleteResponse("the application returned without completing its response")
        if error is None and self._expected is not None and self._size < self._expected:
            error = IncompleteResponse(f"{self._expected} bytes were announced and {self._size} were sent")
        if self.head is not None and self.stage != "held":
            return Streamed(self.head, error)
        if self.head is None:
            return Raised(error or IncompleteResponse("the application sent no response"))
        response = self._answered = Response(self.head.status, self.head.headers, self.pour())
        if error is not None:
            return Raised(error, response if self.is_complete and response.status >= 500 else None)
        return Responded(response, self._waiting is not None)

    # --- what the client is sent

    def render(self, result: Result) -> Response | None:
        """The result as it goes out.  `None`: it was sent already, or no client is left."""
        return render(result, self.request, self.rules, self.request_id)

    def describe(self, problem: Problem) -> Response:
        return describe(problem, self.request, self.rules)


def _usable_id(sent: bytes) -> str | None:
    return sent.decode("ascii") if _USABLE_ID.fullmatch(sent) else None
