"""One guarded request: the hands of its flow, and the `start_response` and `write` of the application.

It translates between PEP 3333 and the exchange, and decides nothing about idempotency.  All of it runs in the
server's own thread.  The application is called, its iterable is read to its end and closed before anything is
sent, so a client that hangs up meanwhile is not even noticed.  Only an answer that cannot be held goes out
piece by piece, through the `write` that PEP 3333 obliges every server to offer.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import NoReturn
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Header, Response, Scope
from retrysafe._core.steps import Gone, Outcome, Result, TooLarge
from retrysafe._http.exchange import Exchange
from retrysafe._runtime.drive_sync import drive
from retrysafe.errors import ConfigurationError
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.policy import Rules
from retrysafe.wsgi.environ import body_length, inner, translate
from retrysafe.wsgi.sending import AndThenClose, Write, and_then_raise, checked, send, start

_PIECE = 64 * 1024
"""How much of a body is asked for at a time."""

_NOBODY_THERE = Response(400, ((b"content-type", b"text/plain"), (b"content-length", b"0")))
"""A server wants to be told something, even where nobody is left to hear it."""

ExcInfo = tuple[type[BaseException], BaseException, object] | tuple[None, None, None]


class GuardedRequest:
    def __init__(
        self,
        app: WSGIApplication,
        guard: Guard,
        rules: Rules,
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> None:
        self._app = app
        self._runtime = guard.runtime
        self._exchange = Exchange(translate(environ), rules)
        self._environ = environ
        self._start_response = start_response
        self._context: Context = copy_context()
        """The application's own: a thread serves many requests, and none must find another's attempt."""
        self._line = ""
        """The application's status line, with its own words."""
        self._head: tuple[int, list[Header]] | None = None
        """As it was started last; it counts as soon as there is a first byte, and can be replaced before."""
        self._ended = False
        self._write: Write | None = None
        """The server's, once something flows."""
        self._close: Callable[[], object] | None = None
        """The application's, until it has been called."""

    def answer(self) -> Iterable[bytes]:
        try:
            return self._answer()
        except BaseException:
            self._context.run(self._close_and_log)
            raise

    def _answer(self) -> Iterable[bytes]:
        exchange = self._exchange
        arrived = drive(exchange.arrive(), self._runtime, self)
        if isinstance(arrived, Claim):
            answer = self._once(arrived)
        else:
            answer = arrived
            self._runtime.end(exchange, None, answer)
        response = exchange.render(answer)
        body: Iterable[bytes]
        if response is not None:
            pieces = exchange.waiting(answer)
            body = send(self._start_response, response, self._line)
            body = body if pieces is None else pieces
        elif exchange.stage == "flowing":
            body = filter(None, [exchange.pour()])
        else:
            body = send(self._start_response, _NOBODY_THERE)
        if answer.error is not None:
            if response is None:
                raise answer.error
            body = and_then_raise(body, answer.error)
        return body if self._close is None else AndThenClose(body, self._close_afterwards)

    def _once(self, claim: Claim) -> Result:
        answer: Result | None = None
        try:
            answer = drive(self._runtime.begin(self._exchange, claim), self._runtime, self)
            return answer
        finally:
            self._runtime.end(self._exchange, claim, answer)

    # --- hands

    def identify(self) -> Scope | None:
        exchange = self._exchange
        answer = exchange.rules.request.scope(exchange.request)
        return scopes.resolve(_refuse("scope", answer) if isinstance(answer, Awaitable) else answer)

    def reauthorise(self) -> bool:
        exchange = self._exchange
        ask = exchange.rules.request.reauthorise
        answer = ask(exchange.request) if ask is not None else True
        return _refuse("reauthorise", answer) if isinstance(answer, Awaitable) else answer

    def read_body(self) -> bytes | TooLarge | Gone:
        exchange = self._exchange
        refused = exchange.announced()
        left = body_length(self._environ)
        while refused is None and left != 0:
            # `read` waits for as much as it is asked for: no more than is needed to see that it is too much.
            wanted = min(_PIECE, exchange.rules.request.max_request - exchange.body.size + 1)
            try:
                piece: bytes = self._environ["wsgi.input"].read(wanted if left is None else min(wanted, left))
            except OSError:
                return Gone()  # how servers say that a body broke off, or was never one
            if not piece:
                if left is not None:
                    return Gone()
                break
            refused = exchange.take(piece)
            left = None if left is None else left - len(piece)
        return refused if refused is not None else exchange.fingerprint()

    def run(self, attempt: Attempt) -> Outcome:
        return self._context.run(self._run, attempt)

    def _run(self, attempt: Attempt) -> Outcome:
        attempts.enter(attempt)
        self._attempt = attempt
        environ = inner(self._environ, self._exchange)
        given = set(environ)
        try:
            self._respond(environ)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self._exchange.outcome(error)
        finally:
            # Frameworks leave what they found (a session, a route) in the environ, for those outside.
            for name in environ.keys() - given:
                self._environ[name] = environ[name]
        return self._exchange.outcome()

    def _respond(self, environ: WSGIEnvironment) -> None:
        pieces = self._app(environ, self.start_response)
        self._close = getattr(pieces, "close", None)
        try:
            for piece in pieces:
                self.write(piece)
            self._begin()
            self._ended = True
            self._exchange.hold(b"", last=True)
        except BaseException:
            self._close_and_log()  # what went wrong first is what counts
            raise
        if self._exchange.rules.request.background == "before":
            self._close_now()

    def _close_now(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()

    def _close_and_log(self) -> None:
        try:
            self._close_now()
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            log.error("close() of an answer that had failed already failed too", exc_info=error)

    def _close_afterwards(self) -> None:
        """As a background task: the answer was sent and stored, and a drain waits for it."""
        running, token = self._runtime.running, self._attempt.claim.token
        running.add(token)
        try:
            self._context.run(self._close_now)
        finally:
            running.discard(token)

    # --- what the application is given

    def start_response(
        self, status: str, sent: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Write:
        if exc_info is not None:
            # PEP 3333: an error page replaces a head of which nothing has left; otherwise the error does.
            if self._exchange.head is not None and exc_info[1] is not None:
                raise exc_info[1]
        elif self._head is not None:
            raise RuntimeError("the application started a second response without saying why (exc_info)")
        self._head = checked(status, sent)
        self._line = status
        return self.write

    def write(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise TypeError(f"the application's body has a {type(data).__name__} in it: expected bytes")
        if not data:
            return  # PEP 3333: nothing, not even the head, is sent for it
        if self._ended:
            raise RuntimeError("the application wrote to a response that was complete")
        self._begin()
        if not self._exchange.hold(data, last=False):
            self._pour()

    def _begin(self) -> None:
        if self._exchange.head is None and self._head is not None:
            self._exchange.start(*self._head)

    def _pour(self) -> None:
        exchange = self._exchange
        if exchange.stage == "held":
            drive(exchange.let_flow(self._attempt), self._runtime, self)
        if exchange.opening is not None:
            head, exchange.opening = exchange.opening, None
            self._write = start(self._start_response, head, self._line)
        body = exchange.pour()
        if self._write is not None:
            self._write(body)


def _refuse(what: str, answer: Awaitable[object]) -> NoReturn:
    if isinstance(answer, Coroutine):
        answer.close()  # it will never be awaited
    raise ConfigurationError(
        f"the {what} function answered something to await, and in WSGI there is no event loop: it must "
        "be a plain function of the request"
    )
