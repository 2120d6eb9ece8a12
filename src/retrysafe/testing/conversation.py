"""What a client and a PostgreSQL server say to each other, as far as a proxy must understand it.

Both directions are streams of messages: a type, a length, a content (in the documentation of PostgreSQL:
"Message Formats").  A client's first message has no type.  Every group of messages that ends in a `Query` or
a `Sync` is answered by a group that ends in `ReadyForQuery`, in the same order: that is how a response is
known to belong to a statement.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

# Codes that a first message has in the place of a version.
_CANCEL, _TLS, _GSSAPI = 80877102, 80877103, 80877104

DECLINED = b"N"
"""The reply to a client that offers encryption, which a proxy could not read."""


class Said(NamedTuple):
    """One message of a client."""

    message: bytes
    statement: str | None = None
    """The text of the SQL statement that it has the server execute, its white space made single blanks."""
    group: int = 0
    """Which of the groups of this conversation it belongs to."""
    declined: bool = False
    """Whether it is an offer to encrypt, to be answered with `DECLINED` and not passed on."""


class Client:
    """Cuts what a client sends into messages, and knows which statement each of them executes.

    A statement that was prepared earlier is recognised by its name.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self.groups = 0
        """How many are complete; the first one is the greeting."""

    def feed(self, data: bytes) -> Iterator[Said]:
        self._buffer += data
        while message := self._next():
            yield self._understand(message) if self._started else self._greet(message)

    def _next(self) -> bytes | None:
        at = 1 if self._started else 0
        if len(self._buffer) < at + 4:
            return None
        (length,) = struct.unpack_from("!I", self._buffer, at)
        if len(self._buffer) < at + length:
            return None
        message = bytes(self._buffer[: at + length])
        del self._buffer[: at + length]
        return message

    def _greet(self, message: bytes) -> Said:
        (code,) = struct.unpack_from("!I", message, 4)
        if code in (_TLS, _GSSAPI):
            return Said(message, declined=True)
        self._started = True
        if code != _CANCEL:
            self.groups += 1
        return Said(message)

    def _understand(self, message: bytes) -> Said:
        group, statement = self.groups, None
        match message[:1]:
            case b"Q":
                statement = _text(message[5:])
                self.groups += 1
            case b"P":
                name, text = message[5:].split(b"\0", 2)[:2]
                self._prepared[name] = _text(text)
            case b"B":
                portal, name = message[5:].split(b"\0", 2)[:2]
                self._portals[portal] = self._prepared.get(name, "")
            case b"E":
                statement = self._portals.get(message[5:].split(b"\0", 1)[0], "")
            case b"S" | b"F":
                self.groups += 1
            case _:
                pass
        return Said(message, statement, group)


class Server:
    """Cuts what a server sends into messages, and counts the groups of responses."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Each message, and whether it is the last one of its group."""
        self._buffer += data
        while len(self._buffer) >= 5:
            (length,) = struct.unpack_from("!I", self._buffer, 1)
            if len(self._buffer) < 1 + length:
                return
            message = bytes(self._buffer[: 1 + length])
            del self._buffer[: 1 + length]
            yield message, message[:1] == b"Z"


def _text(raw: bytes) -> str:
    return re.sub(r"\s+", " ", raw.rstrip(b"\0").decode(errors="replace")).strip()
