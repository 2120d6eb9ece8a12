"""A pooler, as small as can be: two sessions with the server, for whoever has a transaction.

It knows nothing of prepared statements, of settings or of LISTEN, so whatever depends on a session breaks
here, as it does behind a pooler in production.  It reads messages of the protocol (version 3) only so far as
to see where one ends, and where a transaction ends: `ReadyForQuery` with status `I`.
"""

import asyncio
import contextlib
import os
import random
import struct
import threading
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple, Self

SESSIONS = 2
_HEAD = 5
_READY = b"Z\0\0\0\5I"

Gives = Literal["any", "last", "own"]
"""Which session a transaction gets: whichever; the one that was used last, as PgBouncer does it; or always
the same, which nobody else gets: then sessions are pooled, and not transactions."""


class Backend(NamedTuple):
    """A session with the server, which the pooler opened in the name of everybody."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_HEAD)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


class Pooler:
    """Listens on a port of its own, in a thread of its own; `with` ends it."""

    def __init__(self, port: int, database: str, gives: Gives = "any") -> None:
        self._server_port = port
        self._database = database
        self._gives = gives
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pooler")
        self._room = asyncio.Semaphore(SESSIONS)
        self._lent = 0
        self._free: list[Backend] = []
        self._serving: set[asyncio.Task[None]] = set()
        """Those that were opened, in the order in which they were used."""
        self._greeting = b""
        """What the server says when a session is opened: every client hears it again."""
        self.transactions = 0
        """How many it has handed to a session."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def lent(self) -> int:
        """How many sessions are reserved for a client at this moment."""
        return self._lent

    @property
    def url(self) -> str:
        return (
            f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}?sslmode=disable&gssencmode=disable"
        )

    async def _open(self) -> None:
        self._free.append(await self._connect())
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for backend in self._free:
            await backend.close()
        await asyncio.sleep(0)  # what was closed a moment ago is gone after this turn of the loop

    async def _connect(self) -> Backend:
        backend = Backend(*await asyncio.open_connection("127.0.0.1", self._server_port))
        fields = b"\0".join((b"user", b"postgres", b"database", self._database.encode(), b"\0"))
        body = (3 << 16).to_bytes(4, "big") + fields
        backend.writer.write((len(body) + 4).to_bytes(4, "big") + body)
        greeting = b""
        while not greeting.endswith(_READY):
            said = await message(backend.reader)
            # Clients are told of a process that there is not, because they will have many.
            invented = struct.pack("!cII4s", b"K", 12, 2_000_000_000, os.urandom(4))
            greeting += invented if said[:1] == b"K" else said
        self._greeting = greeting
        return backend

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Held here: a task that waits for a backend whose client is gone is referred to by nothing else.
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length - 4)  # who it is, and what it would like to be set
            writer.write(self._greeting)
            if self._gives != "own":
                await self._relay(None, reader, writer)
                return
            own = await self._connect()
            try:
                await self._relay(own, reader, writer)
            finally:
                await own.close()

    async def _relay(
        self, own: Backend | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            first = await message(reader)
            if first[:1] == b"X":
                return
            async with self._given() if own is None else contextlib.nullcontext(own) as backend:
                await self._transaction(first, backend, reader, writer)

    @contextlib.asynccontextmanager
    async def _given(self) -> AsyncGenerator[Backend]:
        async with self._room:
            # Any of all that there may be: one that is not open yet is as good as another.
            index = random.randrange(SESSIONS - self._lent) if self._gives == "any" else len(self._free) - 1
            self._lent += 1
            try:
                found = 0 <= index < len(self._free)
                backend = self._free.pop(index) if found else await self._connect()
                try:
                    yield backend
                except BaseException:
                    await backend.close()  # its client has left in the middle of a transaction
                    raise
                self._free.append(backend)
            finally:
                self._lent -= 1

    async def _transaction(
        self, sent: bytes, backend: Backend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.transactions += 1
        while True:
            backend.writer.write(sent)
            if sent[:1] in (b"S", b"Q"):  # Sync, or a simple query: the server answers now
                while True:
                    answer = await message(backend.reader)
                    writer.write(answer)
                    if answer[:1] == b"Z":
                        break
                await writer.drain()
                if answer == _READY:
                    return
            sent = await message(reader)
