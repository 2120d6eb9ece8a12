"""A pooler as PgBouncer is one: the session that was used last is given out first, and a client that connects
is told of a process that there is not.

It speaks as much of the protocol as it takes to know where a transaction ends.  What a session knows stays
with the server's connection and not with the client's: settings, prepared statements, LISTEN.
"""

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit

_PROTOCOL = 196608
_REFUSABLE = frozenset({80877103, 80877104})
"""Requests for encryption, answered with N."""
_CANCEL = 80877102


class Bouncer:
    """Listens on a free port, for one database of one server that trusts everybody."""

    def __init__(self, url: str, *, per_transaction: bool = True) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._startup = (
            b"user\0" + (parts.username or "").encode() + b"\0database\0" + parts.path[1:].encode()
        )
        self._per_transaction = per_transaction
        self._free: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://{parts.username}@127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self._closed = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.close()
        with self._lock:
            left = [*self._open, *self._free]
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                client, _ = self._listener.accept()
                threading.Thread(target=self._guarded, args=(client,), daemon=True).start()

    def _guarded(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        with contextlib.suppress(OSError, _Gone), client:
            self._serve(client)
        with self._lock:
            self._open.discard(client)

    def _serve(self, client: socket.socket) -> None:
        if not _welcomed(client):
            return
        server, settings = self._connected()
        with self._lock:
            self._free.append(server)
        # The client is told of a process that there is not, because it will have many.
        key = struct.pack("!cII4s", b"K", 12, 2_000_000_000, os.urandom(4))
        client.sendall(struct.pack("!cII", b"R", 8, 0) + settings + key + struct.pack("!cIc", b"Z", 5, b"I"))
        attached: socket.socket | None = None
        try:
            while True:
                message = _read(client)
                if message[:1] == b"X":
                    return
                if attached is None:
                    attached = self._taken()
                attached.sendall(message)
                if message[:1] in (b"S", b"Q") and _relayed(attached, client) and self._per_transaction:
                    self._give(attached)
                    attached = None
        finally:
            if attached is not None:
                attached.close()  # in the middle of a transaction, or of nobody's any more

    def _taken(self) -> socket.socket:
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._connected()[0]

    def _give(self, server: socket.socket) -> None:
        with self._lock:
            self._free.append(server)

    def _connected(self) -> tuple[socket.socket, bytes]:
        """A connection to the server, and the settings of which a client is told."""
        server = socket.create_connection(self._server)
        said = struct.pack("!I", _PROTOCOL) + self._startup + b"\0\0"
        server.sendall(struct.pack("!I", len(said) + 4) + said)
        settings = b""
        for message in _messages(server):
            if message[:1] == b"E":
                raise _Gone
            if message[:1] == b"S":
                settings += message
            if message[:1] == b"Z":
                break
        return server, settings


class _Gone(Exception):
    """One of the two ends is."""


def _welcomed(client: socket.socket) -> bool:
    while True:
        (length,) = struct.unpack("!I", _exactly(client, 4))
        said = _exactly(client, length - 4)
        (code,) = struct.unpack("!I", said[:4])
        if code in _REFUSABLE:
            client.sendall(b"N")
        else:
            return bool(code != _CANCEL)


def _relayed(server: socket.socket, client: socket.socket) -> bool:
    """Pass on what the server says until it is ready again; whether it is in no transaction then."""
    with selectors.DefaultSelector() as watched:
        watched.register(server, selectors.EVENT_READ)
        watched.register(client, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in watched.select()}
            if server in ready:
                message = _read(server)
                client.sendall(message)
                if message[:1] == b"Z":
                    return message[5:6] == b"I"
            elif client in ready and not client.recv(1, socket.MSG_PEEK):
                raise _Gone


def _messages(connection: socket.socket) -> Iterator[bytes]:
    while True:
        yield _read(connection)


def _read(connection: socket.socket) -> bytes:
    head = _exactly(connection, 5)
    (length,) = struct.unpack("!I", head[1:])
    return head + _exactly(connection, length - 4)


def _exactly(connection: socket.socket, number: int) -> bytes:
    parts: list[bytes] = []
    while number:
        part = connection.recv(number)
        if not part:
            raise _Gone
        parts.append(part)
        number -= len(part)
    return b"".join(parts)
