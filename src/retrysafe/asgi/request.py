"""One guarded request: the hands of its flow, and the `receive` and `send` of the application.

It translates between ASGI messages and the exchange, and decides nothing about idempotency.  From the handler
on, the flow runs in a task of its own.  A server that cancels the request, or a client that hangs up, ends
the waiting for it and not the handler: its outcome is stored, and the retry replays it.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import cached_property, partial

from retrysafe import scopes
from retrysafe._core import attempt as attempts
from retrysafe._core.attempt import Attempt
from retrysafe._core.model import Claim, Request, Response, Scope
from retrysafe._core.steps import Flow, Gone, Outcome, Result, Run, TooLarge
from retrysafe._http.exchange import Exchange
from retrysafe._runtime.drive_async import drive_async, drive_to_run, uncancelled
from retrysafe.asgi.types import App, Connection, Message, Receive, Send
from retrysafe.events import log
from retrysafe.guard import Guard
from retrysafe.policy import Rules


class GuardedRequest(Exchange):
    """An exchange over ASGI."""

    _given = 0
    """Bytes of the request's body that the application has taken."""
    _read = False
    """It has taken all of them."""
    _begun = False
    """The task that runs the handler has taken its first step."""
    _deserted = False
    """The server has given the request up, and may be sending something else already."""
    _complete: asyncio.Event | None = None
    _rest: asyncio.Future[None] | None = None
    """What the application still does after its answer."""

    def __init__(
        self, app: App, guard: Guard, rules: Rules, scope: Connection, receive: Receive, send: Send
    ) -> None:
        super().__init__(translate(scope), rules)
        self._app = app
        self._runtime = guard.runtime
        self._scope = scope
        self._receive = receive
        self._send = send

    # Most answers never flow, and most handlers never ask whether their client is gone.

    @cached_property
    def _flows(self) -> asyncio.Event:
        return asyncio.Event()

    @cached_property
    def _pouring(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def answer(self) -> None:
        arrived = await drive_async(self.arrive(), self._runtime, self)
        if isinstance(arrived, Claim):
            answer = await self._once(arrived)
        else:
            answer = arrived
            self._runtime.end(self, None, answer)
        response = self.render(answer)
        if response is not None:
            pieces = self.waiting(answer)
            if pieces is None:
                await send_whole(self._send, response)
            else:
                await _send_pieces(self._send, response, pieces)
        if answer.error is not None:
            raise answer.error
        if self.stage == "flowing":
            await self._flush(more=False)
        if self._rest is not None:
            await asyncio.wait({self._rest})  # as without us: the server counts it as this request's

    async def _once(self, claim: Claim) -> Result:
        flow = self._runtime.begin(self, claim)
        try:
            reached = await drive_to_run(flow, self._runtime, self)
        except BaseException:
            self._runtime.end(self, claim, None)
            raise
        if not isinstance(reached, Run):
            self._runtime.end(self, claim, reached)
            return reached
        try:
            work = self._from_run_on(flow, reached, claim)
            return await uncancelled(work, self._runtime, partial(self._unless_begun, claim))
        except asyncio.CancelledError:
            self._deserted = True
            raise

    async def _from_run_on(self, flow: Flow[Result], run: Run, claim: Claim) -> Result:
        self._begun = True
        answer: Result | None = None
        try:
            answer = await drive_async(flow, self._runtime, self, run)
            return answer
        finally:
            self._runtime.end(self, claim, answer)

    def _unless_begun(self, claim: Claim) -> None:
        if not self._begun:
            self._runtime.leases.forget(claim)
            self._runtime.end(self, claim, None)

    # --- hands

    async def identify(self) -> Scope | None:
        answer = self.rules.request.scope(self.request)
        if not isinstance(answer, Scope) and isinstance(answer, Awaitable):
            answer = await answer
        return scopes.resolve(answer)

    async def reauthorise(self) -> bool:
        ask = self.rules.request.reauthorise
        allowed = ask(self.request) if ask is not None else True
        return (await allowed) if isinstance(allowed, Awaitable) else allowed

    async def read_body(self) -> bytes | TooLarge | Gone:
        refused = self.announced()
        more = True
        while more and refused is None:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return Gone()
            refused = self.take(message.get("body", b""))
            more = message.get("more_body", False)
        if refused is not None:
            return refused
        if self.takes_long():
            return await asyncio.to_thread(self.fingerprint)
        return self.fingerprint()

    async def run(self, attempt: Attempt) -> Outcome:
        attempts.enter(attempt)
        self._attempt = attempt
        self._pieces = iter(self.body.chunks())
        inner = _inner(self._scope, self)
        try:
            work = self._app(inner, self.receive, self.send)
            await (work if self.rules.request.background == "before" else self._ahead_of(work))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            return self.outcome(error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled us: the handler did that to itself, and it is a failure like any other.
            failure = RuntimeError("the handler was cancelled from inside")
            failure.__cause__ = error
            return self.outcome(failure)
        finally:
            # Frameworks leave what they found (a route, its parameters) in the scope, for those outside.
            inner.pop("retrysafe", None)
            for name in inner.keys() - self._scope.keys():
                self._scope[name] = inner[name]
        return self.outcome()

    async def _ahead_of(self, work: Awaitable[None]) -> None:
        """Wait for the application's answer, and leave it to itself with whatever it does afterwards."""
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
            # Whatever becomes of it now, and even if it has become of it already: the answer stands.
            self._rest = task
            task.add_done_callback(_log_failure)

    # --- what the application is given

    async def receive(self) -> Message:
        if not self._read:
            piece = next(self._pieces, b"")
            self._given += len(piece)
            self._read = self._given >= self.body.size
            return {"type": "http.request", "body": piece, "more_body": not self._read}
        if not self._deserted:
            await self._receive()
        # The client is gone.  A handler whose answer is held is not told: it is to finish, so that the
        # retry finds its answer.  One whose answer flows has nobody to send it to.
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
                await drive_async(self.let_flow(self._attempt), self._runtime, self)
                self._flows.set()
            await self._flush(more=True)

    async def _flush(self, *, more: bool) -> None:
        head, self.opening = self.opening, None
        body = self.pour()
        if self.stage == "overtaken" or self._deserted:
            return
        if head is not None:
            await _send_head(self._send, head)
        await _send_body(self._send, body, more=more)


def translate(scope: Connection) -> Request:
    return Request(
        scope["method"],
        scope["path"],
        scope.get("query_string", b""),
        scope["headers"],
        scope.get("scheme", "http"),
        scope.get("user"),
        scope,
        scope.get("root_path", ""),
    )


def route_path(scope: Connection) -> str:
    """The path as the application's own routes have it, without the prefix where it is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if not root:
        return path
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) - 1 :] if path.startswith(prefix) else path


def _inner(scope: Connection, exchange: Exchange) -> Connection:
    """The scope for the application: nothing in it that would lead the response past us.

    No `Accept-Encoding`: a compressing middleware inside would have us keep compressed bytes for clients that
    may not take them.  No extensions by which bytes are sent other than as body messages.  And our request
    id, so that the application's log and ours speak of the same request.
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


async def _send_pieces(send: Send, response: Response, pieces: Iterable[bytes]) -> None:
    await _send_head(send, response)
    for piece in pieces:
        await _send_body(send, piece, more=True)
    await _send_body(send, b"", more=False)


async def _send_head(send: Send, head: Response) -> None:
    await send({"type": "http.response.start", "status": head.status, "headers": list(head.headers)})


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _log_failure(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work after an answer failed, which was sent and stored", exc_info=error)
