"""A pooler in transaction mode, as small as can be: every transaction gets any of two sessions.

It knows nothing of prepared statements, of settings or of LISTEN, so whatever depends on a session breaks
here, as it does behind a pooler in production.  It reads messages of the protocol (version 3) only so far as
to see where one ends, and where a transaction ends: `ReadyForQuery` with status `I`.
"""

import asyncio
import contextlib
import random
import threading
from typing import Self

SESSIONS = 2
_HEAD = 5


class Backend:
    """A session with the server, which the pooler opened in the name of everybody."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = greeting
        """What the server said when it was opened: every client hears it again."""


async def message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_HEAD)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


class Pooler:
    """Listens on a port of its own, in a thread of its own; `with` ends it."""

    def __init__(self, port: int, database: str, *, loyal: bool = False) -> None:
        self._server_port = port
        self._database = database
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pooler")
        self._loyal = loyal
        """Whether a client gets the same session every time, as long as nobody else has it."""
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
    def url(self) -> str:
        return (
            f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}?sslmode=disable&gssencmode=disable"
        )

    async def _open(self) -> None:
        self._free: asyncio.Queue[Backend] = asyncio.Queue()
        self._backends = [await self._connect() for _ in range(SESSIONS)]
        for backend in self._backends:
            self._free.put_nowait(backend)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for backend in self._backends:
            backend.writer.close()
            await backend.writer.wait_closed()
        await asyncio.sleep(0)  # what was closed a moment ago is gone after this turn of the loop

    async def _connect(self) -> Backend:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        fields = b"\0".join((b"user", b"postgres", b"database", self._database.encode(), b"\0"))
        body = (3 << 16).to_bytes(4, "big") + fields
        writer.write((len(body) + 4).to_bytes(4, "big") + body)
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\5I"):
            greeting += await message(reader)
        return Backend(reader, writer, greeting)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length - 4)  # who it is, and what it would like to be set
            writer.write(self._backends[0].greeting)
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            first = await message(reader)
            if first[:1] == b"X":
                return
            backend = await self._any()
            try:
                await self._transaction(first, backend, reader, writer)
            finally:
                self._free.put_nowait(backend)
                if self._loyal:
                    self._free.put_nowait(self._free.get_nowait())

    async def _any(self) -> Backend:
        """Whichever; not always the one that this client had before."""
        backend = await self._free.get()
        if not self._loyal and not self._free.empty() and random.random() < 0.5:
            self._free.put_nowait(backend)
            backend = self._free.get_nowait()
        return backend

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
                if answer == b"Z\0\0\0\5I":
                    return
            sent = await message(reader)
