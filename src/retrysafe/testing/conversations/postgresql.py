"""What a client and a PostgreSQL server say to each other.

A message is a type, a length and a content (in the documentation of PostgreSQL: "Message Formats").  A
client's first message has no type.  Every group of messages that ends in a `Query` or a `Sync` is answered by
a group that ends in `ReadyForQuery`.
"""

import re
import struct
from collections.abc import Iterator

from retrysafe.testing.conversations import Said

# Codes that a first message has in the place of a version.
_CANCEL, _TLS, _GSSAPI = 80877102, 80877103, 80877104

_NOT_ENCRYPTED = b"N"


class PostgresConversation:
    """A statement that was prepared earlier is recognised by its name."""

    def __init__(self) -> None:
        self._asked = bytearray()
        self._answered = bytearray()
        self._started = False
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self.groups = 0  # the first one is the greeting

    def said(self, data: bytes) -> Iterator[Said]:
        self._asked += data
        while message := _next(self._asked, typed=self._started):
            yield self._understand(message) if self._started else self._greet(message)

    def replied(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        self._answered += data
        while message := _next(self._answered, typed=True):
            yield message, message[:1] == b"Z"

    def _greet(self, message: bytes) -> Said:
        (code,) = struct.unpack_from("!I", message, 4)
        if code in (_TLS, _GSSAPI):
            return Said(message, refusal=_NOT_ENCRYPTED)
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


def _next(buffer: bytearray, *, typed: bool) -> bytes | None:
    at = 1 if typed else 0
    if len(buffer) < at + 4:
        return None
    (length,) = struct.unpack_from("!I", buffer, at)
    if len(buffer) < at + length:
        return None
    message = bytes(buffer[: at + length])
    del buffer[: at + length]
    return message


def _text(raw: bytes) -> str:
    return re.sub(r"\s+", " ", raw.rstrip(b"\0").decode(errors="replace")).strip()
