"""One guarded request over WSGI: the steps of its flow, and the application's `start_response` and `write`.

It translates between PEP 3333 and the exchange, and decides nothing about idempotency.  All of it runs in the
server's own thread.  The application is called, its iterable is read to its end and closed before anything is
sent, so a client that disconnects meanwhile is not even noticed.  Only a response that cannot be held goes
out piece by piece, through the `write` that PEP 3333 obliges every server to offer.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import NoReturn
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core.model import Header, Request, Scope
from retrysafe._core.steps import Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.exchange import Exchange
from retrysafe._http.held import CLIENT_GONE
from retrysafe._http.routes import Route
from retrysafe._runtime.drive_sync import call_sync, drive_sync
from retrysafe._runtime.runtime import Later
from retrysafe.errors import ConfigurationError
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.policy import Rules
from retrysafe.wsgi.environ import Incoming, inner, pass_back
from retrysafe.wsgi.sending import AndThenClose, Write, and_then_raise, checked, send, start

PIECE = 64 * 1024
"""How much of a body is asked for at a time."""

ExcInfo = tuple[type[BaseException], BaseException, object] | tuple[None, None, None]


class WsgiExchange(Exchange):
    _line = ""
    """The application's status line, with its own words."""
    _head: tuple[int, list[Header]] | None = None
    """As it was started last; it counts as soon as there is a first byte, and can be replaced before."""
    _ended = False
    _write: Write | None = None
    """The server's, once something flows."""
    _close: Callable[[], object] | None = None
    """The application's, until it has been called."""
    _run: Run

    def __init__(
        self,
        request: Request,
        route: Route,
        app: WSGIApplication,
        guard: Guard,
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> None:
        super().__init__(request, route)
        self._app = app
        self._runtime = guard.runtime
        self._environ = environ
        self._start_response = start_response
        self._incoming = Incoming(environ)
        self._context: Context = copy_context()
        """The application's own: a thread serves many requests, and none must find another's attempt."""

    def serve(self) -> Iterable[bytes]:
        try:
            return self._serve()
        except BaseException:
            self._context.run(self._close_and_log)
            raise

    def _serve(self) -> Iterable[bytes]:
        runtime = self._runtime
        return self._send_result(call_sync(self.respond(runtime.is_draining, runtime.secret), runtime, self))

    def _send_result(self, result: Result) -> Iterable[bytes]:
        response = self.render(result)
        error = self._to_raise(result)
        body: Iterable[bytes]
        if response is not None:
            pieces = self.spooled(result)
            body = send(self._start_response, response, self._line)
            body = body if pieces is None else pieces
        elif error is not None:
            raise error
        elif self.stage == "flowing":
            body = filter(None, [self.pour()])
        else:
            body = send(self._start_response, CLIENT_GONE)
        if error is not None:
            body = and_then_raise(body, error)
        return body if self._close is None else AndThenClose(body, self._close_afterwards)

    def _to_raise(self, result: Result) -> Exception | None:
        return self.error_after(result) if result.error is not None or result.cut_off else None

    # --- the steps of the flow

    def identify(self) -> Scope | None:
        rule = self.rules.request.scope
        if isinstance(rule, scopes.ReadyMade):
            return rule.find(self.request)
        found = rule(self.request)
        if isinstance(found, Awaitable) and not isinstance(found, Scope):
            _refuse("scope", found)
        return scopes.resolve(found)

    def reauthorise(self) -> bool:
        ask = self.rules.request.reauthorise
        allowed = ask(self.request) if ask is not None else True
        return _refuse("reauthorise", allowed) if isinstance(allowed, Awaitable) else allowed

    def read_body(self) -> bytes | TooLarge | Gone:
        refused = self.announced()
        incoming = self._incoming
        while refused is None and not incoming.ended:
            # `read` waits for as much as it is asked for: no more than is needed to see that it is too much.
            wanted = min(PIECE, self.rules.request.max_request - self.body.size + 1)
            try:
                piece = incoming.read(wanted)
            except OSError:
                return Gone()  # how servers say that a body broke off, or was never one
            if piece:
                refused = self.take(piece, last=incoming.ended)
        if incoming.broken:
            return Gone()
        return refused if refused is not None else self.fingerprint()

    def run(self, step: Run) -> Outcome | Later:
        return self._context.run(self._run_handler, step)

    def _run_handler(self, step: Run) -> Outcome:
        attempts.enter(step.attempt)
        self._run = step
        environ = inner(self._environ, self)
        given = set(environ)
        try:
            self._take_response(self._app(environ, self.start_response))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self.outcome(error)
        finally:
            pass_back(environ, given, self._environ)
        return self.outcome()

    def _take_response(self, pieces: Iterable[bytes]) -> None:
        """Read the application's response to its end."""
        self._close = getattr(pieces, "close", None)
        try:
            for piece in pieces:
                self.write(piece)
            self._begin()
            self._ended = True
            self.hold(b"", last=True)
        except BaseException:
            self._close_and_log()  # what went wrong first is what counts
            raise
        if self.rules.request.background == "before":
            self._close_now()

    def _close_now(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()

    def _close_and_log(self) -> None:
        try:
            self._close_now()
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            log.error("close() of a response that had failed already failed too", exc_info=error)

    def _close_afterwards(self) -> None:
        """As a background task: the response was sent and stored, and a drain waits for it."""
        with self._runtime.still_running(self._run.attempt.claim.token):
            self._context.run(self._close_now)

    # --- what the application is given

    def start_response(
        self, status: str, sent: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Write:
        if exc_info is not None:
            # PEP 3333: an error page replaces a head of which nothing has left; otherwise the error does.
            if self.head is not None and exc_info[1] is not None:
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
        if not self.hold(data, last=False):
            self._pour()

    def _begin(self) -> None:
        if self.head is None and self._head is not None:
            self.start(*self._head)

    def _pour(self) -> None:
        if self.stage == "held":
            drive_sync(self.let_flow(self._run), self._runtime, self)
        if self.opening is not None:
            head, self.opening = self.opening, None
            self._write = start(self._start_response, head, self._line)
        body = self.pour()
        if self._write is not None:
            self._write(body)


def _refuse(what: str, found: Awaitable[object]) -> NoReturn:
    if isinstance(found, Coroutine):
        found.close()  # it will never be awaited
    raise ConfigurationError(
        f"the {what} function returned an awaitable, and in WSGI there is no event loop: it must be a plain "
        "function of the request"
    )


def check_rules(rules: Rules) -> None:
    """Refuse what cannot work here, where it is built and not at its first request."""
    from inspect import iscoroutinefunction  # it takes longer to import than this whole library

    for name, function in (("scope", rules.request.scope), ("reauthorise", rules.request.reauthorise)):
        if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
            raise ConfigurationError(
                f"{name}={function!r} is asynchronous, and in WSGI there is no event loop to await it in: "
                "pass a plain function of the request"
            )
    for header in rules.names:
        if b"_" in header:
            raise ConfigurationError(
                f"the header name {header.decode()!r} has an underscore, which WSGI does not tell from a "
                "hyphen: choose a name with hyphens only"
            )
