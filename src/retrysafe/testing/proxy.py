"""A bad connection to a database, on command: cut, refused, slow, silent, or broken at a chosen statement.

    with Proxy(server.port) as proxy:
        store = stores.open(proxy.through(server.new_database()))
        lost = proxy.lose_response("^COMMIT")
        ...
        lost.wait()     # the server has committed, and the client will never know

It stands between the clients and the server, on a loopback port of its own, and understands enough of what
they say (`conversations`) to know which statement a message executes, prepared ones included: as PostgreSQL
speaks, or another one with `Proxy(server.port, RedisConversation)`, where a statement is a command.  A trap
springs once, at the `nth` statement that its regular expression is found in, on whichever connection that
is; the empty one is found in every statement.  Upper and lower case do not matter, and white space is single
blanks.  A connection in which a trap has sprung is cut; the others go on.
"""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self, TypeVar

from retrysafe.testing.conversations import Conversation, Said
from retrysafe.testing.conversations.postgresql import PostgresConversation

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds until a statement that does not come is given up."""

FAREWELL = 1.0
"""Seconds that a server has to take what it was sent before a connection ended: it may be frozen."""

Action = Literal["cut before", "cut during", "lose response", "hold"]


def _ignore(_client: int) -> None:
    pass


class Trap:
    """What happens at a statement, and whether it has."""

    def __init__(
        self,
        pattern: str,
        nth: int,
        action: Action,
        loop: asyncio.AbstractEventLoop,
        before: Callable[[int], None],
    ) -> None:
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._left = nth
        self._loop = loop
        self._before = before
        self._sprung = threading.Event()
        self._released = asyncio.Event()
        self.action: Action = action

    @property
    def sprung(self) -> bool:
        return self._sprung.is_set()

    def wait(self, seconds: float = PATIENCE) -> None:
        """Until it has happened: the connection is cut, or the statement is held."""
        if not self._sprung.wait(seconds):
            raise AssertionError(f"no statement came to {self.action!r} at {self._pattern.pattern!r}")

    def release(self) -> None:
        """Let a statement that is held go on to the server."""
        self._loop.call_soon_threadsafe(self._released.set)

    # --- for the proxy, in its thread

    def meets(self, statement: str) -> bool:
        """Whether this is the statement; it counts those that resemble it."""
        if self._left < 1 or not self._pattern.search(statement):
            return False
        self._left -= 1
        return self._left == 0

    def about_to_cut(self, client: int) -> None:
        self._before(client)

    def spring(self) -> None:
        self._sprung.set()

    async def hold(self) -> None:
        self._sprung.set()
        await self._released.wait()


class Proxy:
    """Between clients and a server on this machine.  Started when it is made; `with` ends it."""

    def __init__(self, port: int, conversation: Callable[[], Conversation] = PostgresConversation) -> None:
        self._upstream = port
        self.new_conversation = conversation
        self._links: set[_Link] = set()
        self._traps: list[Trap] = []
        self._latency = 0.0
        self.accepted = 0
        """How many connections clients have opened so far."""
        self.round_trips = 0
        """How often clients have asked for a reply so far, the greeting of each connection included."""
        # It reserves the port while the proxy does not listen, and never listens itself.
        self._holder = _bound(0)
        self.port: int = self._holder.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def through(self, url: str) -> str:
        """The address of a database of the server, by way of this proxy."""
        direct = f"@127.0.0.1:{self._upstream}/"
        if direct not in url:
            raise ValueError(f"{url} does not lead to 127.0.0.1:{self._upstream}, where this proxy leads")
        return url.replace(direct, f"@127.0.0.1:{self.port}/")

    # --- what can be done to all connections

    def cut(self) -> int:
        """Cut every connection, now; how many there were."""
        return self._do(self._cut)

    def refuse(self) -> None:
        """Refuse new connections, as if no server were there.  Those that exist go on."""
        self._do(self._stop_listening)

    def accept(self) -> None:
        """Take new connections again."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE)

    def lead_to(self, port: int) -> None:
        """Connect new connections with another server, as an address that moves in a fail-over does."""
        self._upstream = port

    def delay(self, seconds: float) -> None:
        """Let everything that the server says arrive so much later."""
        self._latency = seconds

    def swallow(self) -> None:
        """Let nothing arrive on either side: a black hole.  Connections stay open, new ones included.

        What is sent meanwhile arrives after `restore`, as TCP would have it.
        """
        self._do(self._flowing.clear)

    def restore(self) -> None:
        """A good connection again: accepts, does not delay, does not swallow, and all traps are gone."""
        self._latency = 0.0
        self._do(self._traps.clear)
        self._do(self._flowing.set)
        self.accept()

    # --- what can be done at a statement

    # `before` is called with the client's port, in the proxy's thread, when its connection is to be cut.

    def cut_before(self, pattern: str, nth: int = 1, before: Callable[[int], None] = _ignore) -> Trap:
        """Cut the connection that a statement comes from; the server never sees the statement."""
        return self._set_trap(pattern, nth, "cut before", before)

    def cut_during(self, pattern: str, nth: int = 1, before: Callable[[int], None] = _ignore) -> Trap:
        """Pass a statement on and cut the connection at once: the client knows before the server is done."""
        return self._set_trap(pattern, nth, "cut during", before)

    def lose_response(self, pattern: str, nth: int = 1, before: Callable[[int], None] = _ignore) -> Trap:
        """Pass a statement on, wait until the server has answered, keep the response, cut the connection."""
        return self._set_trap(pattern, nth, "lose response", before)

    def hold(self, pattern: str, nth: int = 1) -> Trap:
        """Keep a statement from the server until `release`; its connection stays as it is."""
        return self._set_trap(pattern, nth, "hold")

    def close(self) -> None:
        """Cut everything and end."""
        if not self._thread.is_alive():
            return
        self.refuse()
        # What is held is released, or its task would never end.
        self._do(self._flowing.set)
        self.cut()
        asyncio.run_coroutine_threadsafe(self._links_gone(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        self._holder.close()

    # --- in the proxy's own thread

    def _do(self, what: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(what()))
        return done.result(PATIENCE)

    def _set_trap(
        self, pattern: str, nth: int, action: Action, before: Callable[[int], None] = _ignore
    ) -> Trap:
        trap = Trap(pattern, nth, action, self._loop, before)
        self._do(lambda: self._traps.append(trap))
        return trap

    def met(self, statement: str) -> Trap | None:
        found = [trap for trap in self._traps if trap.meets(statement)]
        for trap in found:
            self._traps.remove(trap)
        return found[0] if found else None

    def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._take, sock=_bound(self.port), backlog=256)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self.accepted += 1
        self._links.add(link)
        try:
            await link.live(self._upstream)
        finally:
            self._links.discard(link)
            link.gone.set()

    async def _links_gone(self) -> None:
        await asyncio.gather(*(link.gone.wait() for link in self._links))

    async def obstacles(self, *, reply: bool) -> None:
        """Whatever stands in the way of bytes at this moment."""
        await self._flowing.wait()
        if reply and self._latency:
            await asyncio.sleep(self._latency)


class _Link:
    """One connection of a client, and the one to the server that goes with it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self.gone = asyncio.Event()
        self._conversation = proxy.new_conversation()
        self._life: asyncio.Future[None] | None = None
        self._doomed: tuple[Trap, int] | None = None
        """A trap that keeps the responses of a group, and that group."""

    def cut(self) -> None:
        if self._life is not None:
            self._life.cancel()

    async def live(self, port: int) -> None:
        """Until one side hangs up, or it is cut."""
        self._life = asyncio.ensure_future(self._connect(port))
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._life
        finally:
            _reset(self._client[1])

    async def _connect(self, port: int) -> None:
        await self._proxy.obstacles(reply=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pumps = [asyncio.ensure_future(self._pass_on(writer)), asyncio.ensure_future(self._pass_back(reader))]
        try:
            ended, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in ended:
                pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            # The client learns at once that it is over; the server gets to read what it was sent.
            _reset(self._client[1])
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await writer.wait_closed()
            writer.transport.abort()

    async def _pass_on(self, server: asyncio.StreamWriter) -> None:
        """What the client says, until one side hangs up or a trap wants the connection to end."""
        reader, writer = self._client
        conversation = self._conversation
        while data := await reader.read(65536):
            await self._proxy.obstacles(reply=False)
            counted = conversation.groups
            for said in conversation.said(data):
                self._proxy.round_trips += conversation.groups - counted
                counted = conversation.groups
                if said.refusal is not None:
                    writer.write(said.refusal)
                elif not await self._deliver(said, server):
                    return
            await server.drain()

    async def _deliver(self, said: Said, server: asyncio.StreamWriter) -> bool:
        """Hand one message to the server; whether the conversation goes on."""
        if self._doomed is not None:
            doom, group = self._doomed
            if said.group > group:
                return True  # it will be cut, and what comes after the statement must not happen
            server.write(said.message)
            complete = self._conversation.groups > group
            return not (doom.action == "cut during" and complete and self._sprung(doom))
        trap = self._proxy.met(said.statement) if said.statement is not None else None
        if trap is None:
            server.write(said.message)
            return True
        match trap.action:
            case "cut before":
                return not self._sprung(trap)
            case "hold":
                await server.drain()
                await trap.hold()
                server.write(said.message)
                return True
            case "cut during" | "lose response":
                self._doomed = (trap, said.group)
                return await self._deliver(said, server)

    async def _pass_back(self, server: asyncio.StreamReader) -> None:
        """What the server says, but for the replies that a trap discards."""
        writer = self._client[1]
        group = 0
        while data := await server.read(65536):
            await self._proxy.obstacles(reply=True)
            for message, ends in self._conversation.replied(data):
                if self._doomed is None or group < self._doomed[1]:
                    writer.write(message)
                elif ends and self._doomed[0].action == "lose response":
                    self._sprung(self._doomed[0])
                    return
                group += ends
            await writer.drain()

    def _sprung(self, trap: Trap) -> bool:
        trap.about_to_cut(self._client[1].get_extra_info("peername")[1])
        # The client notices before the test does.
        _reset(self._client[1])
        trap.spring()
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the other side notices at once, whatever was still on its way."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _bound(port: int) -> socket.socket:
    # Said in full, or asyncio does not know that it is TCP, and leaves Nagle's algorithm on: a reply of
    # several messages would be 40 ms late.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound
