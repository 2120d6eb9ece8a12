"""One guarded request over ASGI: the steps of its flow, and the `receive` and `send` of the application.

It translates between ASGI messages and the exchange, and decides nothing about idempotency.  A server that
cancels the request, or a client that disconnects, ends the waiting for the handler and not the handler: its
outcome is stored, and the retry replays it.
"""

import asyncio
from collections.abc import Awaitable
from functools import cached_property

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core.model import Request, Response, Scope
from retrysafe._core.steps import Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.exchange import Exchange
from retrysafe._runtime.drive_async import call_async, cancelled_from_inside, drive_async
from retrysafe._runtime.runtime import Later, Runtime
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.events import log


class AsgiRequest(Request):
    """The head of a request, out of its ASGI scope; `fields` are the headers by name."""

    __slots__ = ()
    native: Connection

    def __init__(self, scope: Connection, fields: dict[bytes, bytes]) -> None:
        self.method = scope["method"]
        self.path = scope["path"]
        self.query = scope.get("query_string", b"")
        self.headers = scope["headers"]
        self.fields = fields
        self.native = scope
        self.root = scope.get("root_path", "")

    # Few requests ask for these.

    @property
    def scheme(self) -> str:
        scheme: str = self.native.get("scheme", "http")
        return scheme

    @property
    def principal(self) -> object:
        return self.native.get("user")


class AsgiExchange(Exchange):
    _given: int = 0
    """Bytes of the request's body that the application has taken."""
    _read = False
    """It has taken all of them."""
    _deserted = False
    """The server has given the request up, and may be sending something else already."""
    _complete: asyncio.Event | None = None
    _rest: asyncio.Future[None] | None = None
    """What the application still does after its response."""
    _run: Run

    # Most responses never flow, and most handlers never ask whether their client is gone.

    @cached_property
    def _flows(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _pouring(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def serve(
        self, app: App, runtime: Runtime, scope: Connection, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._runtime = runtime
        self._scope = scope
        self._receive = receive
        self._send = send
        result = await call_async(self.respond(runtime.is_draining, runtime.secret), runtime, self)
        await self._send_result(result)
        if self._rest is not None:
            await asyncio.wait({self._rest})  # as without us: the server counts it as this request's

    async def _send_result(self, result: Result) -> None:
        send = self._send
        response = self.render(result)
        if response is not None:
            status, headers, body = response
            await send({"type": "http.response.start", "status": status, "headers": list(headers)})
            if self._spooled is not None and (pieces := self.spooled(result)) is not None:
                for piece in pieces:
                    await _send_body(send, piece, more=True)
            await send({"type": "http.response.body", "body": body, "more_body": False})
        if result.error is not None or result.cut_off:
            raise self.error_after(result)
        if self.stage == "flowing":
            await self._flush(more=False)

    # --- the steps of the flow

    def identify(self) -> Awaitable[Scope | None] | Scope | None:
        rule = self.rules.request.scope
        if isinstance(rule, scopes.ReadyMade):
            return rule.find(self.request)
        found = rule(self.request)
        if isinstance(found, Scope) or not isinstance(found, Awaitable):
            return scopes.resolve(found)
        return _resolved(found)

    def reauthorise(self) -> Awaitable[bool] | bool:
        ask = self.rules.request.reauthorise
        return ask(self.request) if ask is not None else True

    async def read_body(self) -> bytes | TooLarge | Gone:
        refused, more = self.announced(), True
        while more and refused is None:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return Gone()
            more = message.get("more_body", False)
            refused = self.take(message.get("body", b""), last=not more)
        return await self._take_fingerprint() if refused is None else refused

    async def _take_fingerprint(self) -> bytes:
        if self.body.size > 65536 and self.takes_long():
            return await asyncio.to_thread(self.fingerprint)
        return self.fingerprint()

    def run(self, step: Run) -> Awaitable[Outcome] | Later:
        return self._run_application(step)

    async def _run_application(self, step: Run) -> Outcome:
        attempts.enter(step.attempt)
        self._run = step
        self._pieces = iter(self.body.chunks())
        inner = inner_scope(self._scope, self)
        try:
            work = self._app(inner, self.receive, self.send)
            await (work if self.rules.request.background == "before" else self._ahead_of(work))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self.outcome(error)
        except asyncio.CancelledError as error:
            return self.outcome(cancelled_from_inside(error))
        finally:
            # Frameworks leave what they found (a route, its parameters) in the scope, for those outside.
            inner.pop("retrysafe", None)
            if len(inner) > len(self._scope):
                for name in inner.keys() - self._scope.keys():
                    self._scope[name] = inner[name]
                self.route = template(inner) or self.route
        return self.outcome()

    async def _ahead_of(self, work: Awaitable[None]) -> None:
        """Wait for the application's response, and leave it to itself with what it does afterwards."""
        self._complete = asyncio.Event()
        task = asyncio.ensure_future(work)
        self._runtime.remember(task)
        complete = asyncio.ensure_future(self._complete.wait())
        try:
            await asyncio.wait({task, complete}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            complete.cancel()
        if task.done() and not self.is_complete:
            task.result()
        else:
            # Whatever becomes of it now, or has become of it already: the response stands.
            self._rest = task
            task.add_done_callback(_log_failure)

    def desert(self) -> None:
        self._deserted = True

    # --- what the application is given

    async def receive(self) -> Message:
        if not self._read:
            piece = next(self._pieces, b"")
            self._given += len(piece)
            self._read = self._given >= self.body.size
            return {"type": "http.request", "body": piece, "more_body": not self._read}
        if not self._deserted:
            await self._receive()
        # The client is gone.  A handler whose response is held is not told: it is to finish, so that the
        # retry is sent its response.  One whose response flows has no client to send it to.
        await self._flows.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.start(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and not self.is_complete:
            last = not message.get("more_body", False)
            if not self.hold(message.get("body", b""), last=last):
                await self._pour()
            elif last and self._complete is not None:
                self._complete.set()

    async def _pour(self) -> None:
        # One at a time: an application may send from several tasks.
        async with self._pouring:
            if self.stage == "held":
                await drive_async(self.let_flow(self._run), self._runtime, self)
                self._flows.set()
            await self._flush(more=True)

    async def _flush(self, *, more: bool) -> None:
        head, self.opening = self.opening, None
        body = self.pour()
        if self.stage == "discarded" or self._deserted:
            return
        if head is not None:
            await _send_head(self._send, head)
        await _send_body(self._send, body, more=more)


async def _resolved(found: Awaitable[scopes.ScopeAnswer]) -> Scope | None:
    return scopes.resolve(await found)


def route_path(scope: Connection) -> str:
    """The path as the application's own routes have it, without the prefix where it is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if not root:
        return path
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) - 1 :] if path.startswith(prefix) else path


def template(scope: Connection) -> str | None:
    """The route's template, as far as the framework has left it in the scope.

    FastAPI leaves the route; Starlette leaves the parameters, from which its template follows.
    """
    found = getattr(scope.get("route"), "path", None)
    if isinstance(found, str):
        return found
    if "endpoint" not in scope:
        return None
    names = {str(value): name for name, value in scope.get("path_params", {}).items()}
    parts = scope["path"].split("/")
    return "/".join(f"{{{names[part]}}}" if part in names else part for part in parts)


def inner_scope(scope: Connection, exchange: Exchange) -> Connection:
    """The scope for the application: nothing in it that would lead the response past us.

    No `Accept-Encoding`: a compressing middleware inside would have us store compressed bytes for clients
    that may not take them.  No extensions by which bytes are sent other than as body messages.  And our
    request id, so that the application's log and ours speak of the same request.
    """
    id_name, sent = exchange.rules.names.request_id, exchange.request.fields
    headers = [*scope["headers"], (id_name, exchange.request_id.encode())]
    if b"accept-encoding" in sent or id_name in sent:
        *theirs, ours = headers
        headers = [pair for pair in theirs if pair[0] != b"accept-encoding" and pair[0] != id_name]
        headers.append(ours)
    inner = {**scope, "headers": headers, "retrysafe": True}
    offered: dict[str, object] | None = scope.get("extensions")
    if offered:
        inner["extensions"] = {
            name: offer for name, offer in offered.items() if not name.startswith("http.response.")
        }
    return inner


async def send_whole(send: Send, response: Response) -> None:
    status, headers, body = response
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _send_head(send: Send, head: Response) -> None:
    await send({"type": "http.response.start", "status": head.status, "headers": list(head.headers)})


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _log_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work after a response failed; the response was sent and stored", exc_info=error)
