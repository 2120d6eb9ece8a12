"""A request over WSGI that is held from outside and claimed by its endpoint: `_http/held.py` says why.

`Holder` stands around the application: it takes a copy of the body while the application reads it, and lets
everything pass that is sent without a claim, such as a 401 or a redirect.  From the claim on
(`HeldExchange.claim_key`) the response is held, until the application has returned, its iterable is closed
and its outcome is stored.  All of it runs in the server's own thread.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from mmap import mmap
from typing import NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Header, Request, Response
from retrysafe._core.steps import Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.body import EMPTY
from retrysafe._http.held import CLIENT_GONE, check_claim, name_of, without_doubles
from retrysafe._http.routes import Protected, Published
from retrysafe._runtime.drive_sync import break_off_sync, claim_sync, conclude_sync
from retrysafe._runtime.runtime import LATER, Later
from retrysafe.errors import StoreUnavailable
from retrysafe.guard import Guard
from retrysafe.policy import Rules
from retrysafe.wsgi.environ import GUARDED, around, decoded, pass_back, translate, variable
from retrysafe.wsgi.exchange import PIECE, ExcInfo, WsgiExchange
from retrysafe.wsgi.sending import AndThenClose, Write, checked, send, start


class Holder:
    """Holds the requests to `app` that carry a key, so that endpoints can claim it."""

    def __init__(
        self,
        app: WSGIApplication,
        guard: Guard,
        endpoints: Callable[[], Iterable[Protected]],
        receiving: "Callable[[WSGIEnvironment], type[HeldExchange] | None] | None" = None,
    ) -> None:
        self.app = app
        self.guard = guard
        self._name = name_of(guard)
        self._routes = guard.held_routes()
        self._endpoints = endpoints
        self._receiving = receiving
        """As what a request is held that goes to an endpoint which takes deliveries."""
        self._methods = guard.rules.wire.methods
        self._key = variable(guard.rules.names.key)

    def published(self) -> Published:
        """What is in force, as it is published."""
        return self._routes.published(self._endpoints())

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ[self._name] = None
        method = environ["REQUEST_METHOD"]
        keyed = self._key in environ and (method in self._methods or method.upper() in self._methods)
        kind = self._receiving(environ) if self._receiving is not None else None
        if kind is None and keyed:
            kind = HeldExchange
        # A guard outside that has taken the request on holds its response already.
        if kind is not None and GUARDED not in environ:
            exchange = kind(
                translate(environ), self._routes.otherwise, self.app, self.guard, environ, start_response
            )
            exchange.keyed = keyed
            return exchange.hold_request(self._name, self.guard.largest_request)
        if self._routes.publishes(method, decoded(environ.get("PATH_INFO", ""))):
            return send(start_response, self._routes.specification(translate(environ), self._endpoints()))
        return self.app(environ, start_response)


class _Page(NamedTuple):
    """What a framework made of an exception, in words that say nothing."""

    error: Exception
    status: int
    body: bytes


class HeldExchange(WsgiExchange):
    keyed = True
    """It has a key that an endpoint may claim; otherwise it was held for what is delivered."""
    _limit = 0
    """How much of a body is copied: as much as any route of the guard may claim."""
    _name = ""
    _beyond = False
    """It was more, and there is no copy."""
    _uncopied: StoreUnavailable | None = None
    """Why there is none, although it was not."""
    _given = 0
    """Bytes of the body that the application has been given."""
    _copy: bytes | mmap | None = None
    """The whole body, once it was read for the claim."""
    _passing: Iterable[bytes] = ()
    """The response of an application that has not claimed."""
    _claiming = False
    _attempt: Attempt | None = None
    _settled: Response | None = None
    """What the client is sent instead of a run: a replay or a problem, which goes through the application."""
    _brought: tuple[str, list[Header]] | None = None
    """The head with which the application has brought it through."""
    _started = False
    _page: _Page | None = None
    _unclaimed = attempts.NOTHING_BEGUN
    _propagated: Exception | None = None
    """One of which the framework makes no page, because it is to reach a test or a debugger."""
    _in_place_of: Response | None = None
    """The head of such a page, where a problem is sent instead."""

    def hold_request(self, name: str, limit: int) -> Iterable[bytes]:
        self._name = name
        self._limit = limit
        return self.serve()

    def _serve(self) -> Iterable[bytes]:
        outcome = self._context.run(self._run_application)
        if outcome is None:
            return self._passing
        result = conclude_sync(self._flow, self._runtime, self, outcome)
        if self._propagated is not None:
            raise self._propagated
        return self._send_result(result)

    def _run_application(self) -> Outcome | None:
        """What came of an application that has claimed; `None`: it has not, and its response passes."""
        self._unclaimed = attempts.watch_unclaimed()
        environ = around(self._environ, self)
        environ["wsgi.input"] = io.BufferedReader(_Copied(self))
        environ[self._name] = self
        given = set(environ)
        try:
            pieces = self._app(environ, self.start_response)
            if self._attempt is None:
                self._passing = self._pass_on(pieces)
                return None
            self._take_response(pieces)
        except Exception as error:
            if self._attempt is None:
                raise
            if self._page is not None and self._page.error is error:
                self._propagated = error
            return self.outcome(error)
        except BaseException as end:
            if self._attempt is not None:
                break_off_sync(self._flow, self._runtime, self, end)
            raise
        finally:
            pass_back(environ, given, self._environ)
            if self._attempt is None:
                self._drop_copy()
        if self._page is not None and self._is_page(self._page):
            self.head, self._in_place_of = None, self.head
            return self.outcome(self._page.error)
        return self.outcome()

    def _pass_on(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        close = getattr(pieces, "close", None)
        if self._settled is None:
            return _InContext(pieces, close, self._context)
        try:
            # As it comes out of the application: something in it may have made another response of it.
            body: Iterable[bytes] = [piece for piece in pieces if piece]
        except BaseException:
            if close is not None:
                close()
            raise
        if self._brought is not None:
            status, fields = self._brought
            response = self._as_settled(self._settled, fields, b"".join(body))
            start(self._start_response, response, status)
            body = [response.body] if response.body else []
        return body if close is None else AndThenClose(body, close)

    def _as_settled(self, settled: Response, fields: list[Header], body: bytes) -> Response:
        """What was settled, with the headers that the application has added to it just now."""
        sent = without_doubles([(name.lower(), value) for name, value in fields], settled.headers)
        stale = {_LENGTH} if body == settled.body else _ABOUT_THE_BODY
        fresh = [pair for pair in sent if pair[0] not in stale]
        # What marks a replay or says when to retry is there even if a response of another kind came out.
        marks = {*self.rules.names, *self.rules.rendering.hints, self.rules.rendering.keyed_id}
        marks.difference_update(name for name, _ in fresh)
        stored = [pair for pair in settled.headers if pair[0] in stale or pair[0] in marks]
        return settled._replace(headers=(*fresh, *stored))

    def _is_page(self, page: _Page) -> bool:
        return (
            self.head is not None
            and self.head.status == page.status
            and self.stage == "held"
            and b"".join(self._held) == page.body
        )

    def _to_raise(self, result: Result) -> Exception | None:
        if self._in_place_of is not None:
            return None  # the framework has logged it already
        return super()._to_raise(result)

    def render(self, result: Result) -> Response | None:
        response = super().render(result)
        if response is None or self._in_place_of is None:
            return response
        # With what the application adds to each response of its own, such as for other origins.
        ours = dict(response.headers)
        added = tuple(pair for pair in self._in_place_of.headers if pair[0] not in ours)
        return response._replace(headers=response.headers + added)

    # --- for the endpoint

    def claim_key(self, rules: Rules, request: Request, route: str) -> Attempt | Response:
        """Claim the key: what runs from now on, or what its client is to be sent instead."""
        runtime, unclaimed = self._runtime, self._unclaimed
        check_claim(request, rules, runtime.store, unclaimed, claiming=self._claiming, started=self._started)
        if rules.policy.effects == "database":
            for session in unclaimed.sessions:
                session.release()
        self._claiming = True
        self.rules = rules
        self.route = route
        self.request = request
        self._flow = self.respond(self._runtime.is_draining, self._runtime.secret)
        reached = claim_sync(self._flow, self._runtime, self)
        if isinstance(reached, Run):
            self._attempt = reached.attempt
            return reached.attempt
        self._copy = b""  # what is left of the body concerns no one
        self._settled = self.render(reached) or CLIENT_GONE
        return self._settled

    def failed(self, error: Exception, status: int, page: bytes) -> None:
        """The framework made this page of an exception: where it is what is sent, that is the outcome."""
        self._page = _Page(error, status, page)

    # --- the steps of the flow

    def read_body(self) -> bytes | TooLarge | Gone:
        limit = self.rules.request.max_request
        refused = self.announced() is not None or self._beyond or self.body.size > limit
        try:
            while not (refused or self._incoming.ended or self._incoming.broken):
                # `read` waits for as much as it is asked for: no more than to see that it is too much.
                self._read(min(PIECE, limit - self.body.size + 1))
                refused = self._beyond or self.body.size > limit
        except OSError:
            return Gone()
        if self._incoming.broken:
            return Gone()
        if self._uncopied is not None:
            raise self._uncopied
        if refused:
            return TooLarge(limit)
        self._copy = self.body.view()
        return self.fingerprint()

    def run(self, step: Run) -> Later:
        self._run = step
        return LATER

    # --- what the application is given

    def _read(self, size: int) -> bytes:
        piece = self._incoming.read(size)
        if piece and not self._beyond and self._uncopied is None:
            try:
                # No route is known yet: as much as any of them may take, whatever the guard itself says.
                if self.take(piece, last=self._incoming.ended, limit=self._limit) is not None:
                    self._drop_copy()
            except StoreUnavailable as trouble:  # the disk is full, which only a claim has to know
                self._uncopied = trouble
                self._drop_copy()
        return piece

    def _drop_copy(self) -> None:
        self._beyond = True
        self.body.close()
        self.body = EMPTY

    def next_piece(self, size: int) -> bytes:
        """What the application reads next of the body."""
        copy, at = self._copy, self._given
        piece = self._read(size) if copy is None else copy[at : at + size]
        self._given += len(piece)
        return piece

    def start_response(
        self, status: str, sent: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Write:
        if self._attempt is not None:
            return super().start_response(status, sent, exc_info)
        self._started = True
        self._brought = None
        if self._settled is not None and exc_info is None:
            code, fields = checked(status, sent)
            if code == self._settled.status:
                self._brought = status, fields
                return _discard
        if exc_info is None:
            return self._start_response(status, sent)
        return self._start_response(status, sent, exc_info)  # type: ignore[arg-type]  # handed on as it came


_LENGTH = b"content-length"

_ABOUT_THE_BODY = frozenset(
    b"content-length content-type content-encoding content-language content-range content-digest repr-digest "
    b"digest content-md5 etag last-modified".split()
)
"""Not true of the stored body, where something in the application has made another body of it."""


def _discard(_: bytes) -> None:
    """What is written to a response whose bytes are there already."""


class _Copied(io.RawIOBase):
    """The body of a request: copied while it is read, and read from the copy once that is complete."""

    def __init__(self, exchange: HeldExchange) -> None:
        self._exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # what a reader passes
        piece = self._exchange.next_piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class _InContext:
    """A response that passes, in pieces that are made in the context in which the application was called."""

    def __init__(self, pieces: Iterable[bytes], close: Callable[[], object] | None, context: Context) -> None:
        self._pieces = pieces
        self._context = context
        if close is not None:
            self.close = lambda: context.run(close)

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._context.run(iter, self._pieces)
        end = object()
        while (piece := self._context.run(next, pieces, end)) is not end:
            assert isinstance(piece, bytes)
            yield piece
