"""A request over ASGI that is held from outside and claimed by its endpoint: `_http/held.py` says why.

`Holder` stands around the application: it takes a copy of the body while the application reads it, and lets
everything pass that is sent without a claim, such as a 401 or a redirect.  It holds requests with a key, and
those to endpoints that take deliveries of events, whose ids are in what is delivered.  From the claim on
(`HeldExchange.claim_key`) the response is held, until the application has returned and its outcome is stored.

The application runs in a task of its own: a server that cancels the request ends the waiting for it, and not
an endpoint that has claimed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Response
from retrysafe._core.steps import Gone, Run, TooLarge
from retrysafe._http.body import EMPTY
from retrysafe._http.held import CLIENT_GONE, check_claim, name_of, without_doubles
from retrysafe._http.routes import Protected, Published, Route
from retrysafe._runtime.drive_async import (
    break_off_async,
    cancelled_from_inside,
    claim_async,
    conclude_async,
)
from retrysafe._runtime.runtime import LATER, Later, Runtime
from retrysafe.asgi.exchange import (
    AsgiExchange,
    AsgiRequest,
    inner_scope,
    route_path,
    send_whole,
    template,
)
from retrysafe.asgi.lifespan import live
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.errors import StoreUnavailable
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.policy import Rules


class Holder:
    """Holds the requests to `app` that carry a key, so that endpoints can claim it."""

    def __init__(
        self,
        app: App,
        guard: Guard,
        has_error_handler: Callable[[], bool],
        endpoints: Callable[[], Iterable[Protected]],
        receiving: "Callable[[str, str], type[HeldExchange] | None] | None" = None,
    ) -> None:
        self.app = app
        self.guard = guard
        self._has_error_handler = has_error_handler
        self._name = name_of(guard)
        self._routes = guard.held_routes()
        self._endpoints = endpoints
        self._receiving = receiving
        """As what a request with this method and path is held, if deliveries are taken there."""
        self._methods = guard.rules.wire.methods
        self._key = guard.rules.names.key

    def published(self) -> Published:
        """What is in force."""
        return self._routes.published(self._endpoints())

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await live(self.app, self.guard, scope, receive, send)
        if scope["type"] == "http":
            scope[self._name] = None
            method = scope["method"]
            fields = dict(scope["headers"])
            path: str = route_path(scope) if scope.get("root_path") else scope["path"]
            keyed = self._key in fields and (method in self._methods or method.upper() in self._methods)
            kind = self._receiving(method, path) if self._receiving is not None else None
            if kind is None and keyed:
                kind = HeldExchange
            # What a middleware outside has claimed is not to be held a second time.
            if kind is not None and "retrysafe" not in scope:
                exchange = kind(AsgiRequest(scope, fields), self._routes.otherwise, self.guard.runtime)
                exchange.limit = self.guard.largest_request
                exchange.has_error_handler = self._has_error_handler
                exchange.keyed = keyed
                return await exchange.hold_request(self._name, self.app, scope, receive, send)
            if self._routes.publishes(method, path):
                request = AsgiRequest(scope, fields)
                return await send_whole(send, self._routes.specification(request, self._endpoints()))
        return await self.app(scope, receive, send)


class HeldExchange(AsgiExchange):
    keyed = True
    """It has a key that an endpoint may claim; otherwise it was held for what is delivered."""
    limit = 0
    """How much of a body is copied: as much as any route of the guard may claim."""
    has_error_handler: Callable[[], bool]
    """Whether the application makes the response to an exception that no endpoint handles."""
    _beyond: TooLarge | None = None
    _uncopied: StoreUnavailable | None = None
    """Why there is no copy of the body, although the application was given all of it."""
    _attempt: Attempt | None = None
    _task: asyncio.Future[None]
    """The application at work."""
    _settled: Response | None = None
    """What the client is sent instead of a run: a replay or a problem, which goes through the application."""
    _started = False
    _claiming = False
    _unclaimed = attempts.NOTHING_BEGUN
    _withdrawn = False
    """The server has cancelled it before it had claimed, and the endpoint's task may not know yet."""
    _afterwards: Callable[[], Awaitable[None]] | None = None

    def __init__(self, request: AsgiRequest, route: Route, runtime: Runtime) -> None:
        super().__init__(request, route)
        self._runtime = runtime

    async def hold_request(
        self, name: str, app: App, scope: Connection, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = self._unless_deserted(send)
        inner = inner_scope(scope, self)
        del inner["retrysafe"]  # it is not guarded yet
        inner[name] = self
        self._task = task = asyncio.ensure_future(self._live(inner))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if self._attempt is None:
                self._withdrawn = True
                self._runtime.remember(task)  # to its end, should the waiting be cancelled too
                task.cancel()
                await asyncio.wait({task})
            else:
                self.desert()
                task.add_done_callback(_log_failure)
            raise
        task.result()

    async def _live(self, inner: Connection) -> None:
        try:
            await self._serve(inner)
        finally:
            self.body.close()

    def close(self) -> None:
        """Only when the application has returned: it may read its body after a replay too."""

    async def _serve(self, inner: Connection) -> None:
        """The application's whole work for this request, and what follows from it."""
        error: Exception | None = None
        self._unclaimed = attempts.watch_unclaimed()
        try:
            await self._app(inner, self.receive, self.send)
        except Exception as raised:
            if self._attempt is None:
                raise
            error = raised
        except asyncio.CancelledError as cancelled:
            if self._attempt is None:
                raise
            try:
                error = cancelled_from_inside(cancelled)
            except asyncio.CancelledError:
                await break_off_async(self._flow, self._runtime, self, cancelled)
                raise
        except BaseException as end:
            if self._attempt is not None:
                await break_off_async(self._flow, self._runtime, self, end)
            raise
        finally:
            # Frameworks leave what they found (a route, its parameters) in the scope, for those outside.
            for found in inner.keys() - self._scope.keys():
                self._scope[found] = inner[found]
        if self._attempt is None:
            return
        if error is not None and self._is_stock_page():
            self.head = None
        result = await conclude_async(self._flow, self._runtime, self, self.outcome(error))
        await self._send_result(result)
        # The endpoint may have run in another task; what it has left to do belongs to the same call.
        attempts.enter(self._attempt)
        if self._afterwards is not None and (result.reply is self._responded or self.stage == "flowing"):
            await self._afterwards()

    def _unless_deserted(self, send: Send) -> Send:
        async def send_unless_deserted(message: Message) -> None:
            if not self._deserted:
                await send(message)

        return send_unless_deserted

    def _is_stock_page(self) -> bool:
        """Whether the page of an error is the framework's, which says nothing, and not the application's."""
        page = self.head
        return (
            page is not None
            and page.status == 500
            and self.stage == "held"
            and b"".join(self._held) == b"Internal Server Error"
            and not self.has_error_handler()
        )

    # --- for the endpoint

    async def claim_key(self, rules: Rules, scope: Connection) -> Attempt | Response:
        """Claim the key: what runs from now on, or what its client is to be sent instead."""
        runtime, unclaimed = self._runtime, self._unclaimed
        check_claim(
            self.request, rules, runtime.store, unclaimed, claiming=self._claiming, started=self._started
        )
        if rules.policy.effects == "database":
            for session in unclaimed.sessions:
                await session.release_async()
        self._claiming = True
        self.rules = rules
        self.route = template(scope) or self.route
        self.request.native = scope
        self._flow = self.respond(self._runtime.is_draining, self._runtime.secret)
        reached = await claim_async(self._flow, self._runtime, self)
        if isinstance(reached, Run):
            if self._withdrawn:
                # The cancellation is on its way here, by way of a task in between, and nothing has begun.
                self._runtime.abandon(self)
                raise asyncio.CancelledError
            self._attempt = reached.attempt
            # From now on and not earlier: a drain does not wait for what claims nothing.
            self._runtime.remember(self._task)
            return reached.attempt
        self._settled = self.render(reached) or CLIENT_GONE
        return self._settled

    def run_afterwards(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have something done when the response was sent, if it is the one that this run gave."""
        self._afterwards = work

    # --- the steps of the flow

    async def read_body(self) -> bytes | TooLarge | Gone:
        refused = self._beyond or self.announced()
        while not self._received and refused is None:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return Gone()
            refused = self._copy(message)
        self._pieces = _skip(self.body.chunks(), self._given)
        if self._uncopied is not None:
            raise self._uncopied
        limit = self.rules.request.max_request
        if refused is not None or self.body.size > limit:
            return TooLarge(limit)
        return await self._take_fingerprint()

    def run(self, step: Run) -> Later:
        self._run = step
        return LATER

    # --- what the application is given

    _received = False
    """The whole body has arrived."""

    def _copy(self, message: Message) -> TooLarge | None:
        more: bool = message.get("more_body", False)
        self._received = not more
        if self._beyond is None and self._uncopied is None:
            # No route is known yet: as much as any of them may take, whatever the guard itself says.
            try:
                self._beyond = self.take(message.get("body", b""), last=not more, limit=self.limit)
            except StoreUnavailable as trouble:  # the disk is full, which only a claim has to know
                self._uncopied = trouble
            if self._beyond is not None or self._uncopied is not None:
                self.body.close()
                self.body = EMPTY
        return self._beyond

    async def receive(self) -> Message:
        # Held, or read by a claim that came to nothing and not by the application.
        if self._attempt is not None or (self._claiming and self._received and not self._read):
            return await super().receive()
        message = await self._receive()
        if message["type"] == "http.request" and not self._claiming:
            self._copy(message)
            self._given += len(message.get("body", b""))
            self._read = self._received
        return message

    async def send(self, message: Message) -> None:
        if self._attempt is not None:
            await super().send(message)
            return
        self._started = True
        if self._settled is not None and message["type"] == "http.response.start":
            message = {
                **message,
                "headers": without_doubles(message.get("headers", ()), self._settled.headers),
            }
        await self._send(message)


def _skip(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """What comes after so many bytes, which the application has been given already."""
    for chunk in chunks:
        if size >= len(chunk):
            size -= len(chunk)
        else:
            yield chunk[size:]
            size = 0


def _log_failure(task: asyncio.Future[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("a request whose client is gone failed", exc_info=error)
