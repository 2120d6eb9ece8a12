"""What a client and a MySQL or MariaDB server say to each other.

A packet is a length, a number and a content (in the documentation of MySQL: "Client/Server Protocol").  The
server speaks first.  A command is a packet with the number 0, and a group of its own; the first group is the
greeting.  Replies do not say of themselves where they end: that depends on what was asked, so both directions
are followed together.
"""

import re
import struct
from collections import deque
from collections.abc import Generator, Iterator
from typing import Literal

from retrysafe.testing.conversations import Said

_WHOLE = 0xFFFFFF
"""A packet of this length is continued by the next one."""

# Abilities that the two agree on.
_COMPRESSES, _ENCRYPTS, _ENDS_WITH_OK = 0x20, 0x800, 1 << 24

_MORE_RESULTS = 0x08

_QUIT, _QUERY, _CHANGE_USER, _PREPARE, _EXECUTE, _SEND_LONG, _CLOSE = 0x01, 0x03, 0x11, 0x16, 0x17, 0x18, 0x19

_Kind = Literal["greeting", "result", "prepared", "packet"]

_Reader = Generator[None, bytes, None]
"""Is sent one packet after the other, and ends with the last one of its group."""


class MySQLConversation:
    """A statement that was prepared earlier is recognised by its number.

    The server's offers to encrypt and to compress are not passed on.
    """

    def __init__(self) -> None:
        self._asked = bytearray()
        self._answered = bytearray()
        self._pending: deque[tuple[_Kind, str]] = deque([("greeting", "")])
        self._reader: _Reader | None = None
        self._prepared: dict[int, str] = {}
        self._last = 0
        """The number of the statement that was prepared last; MariaDB's clients call it -1."""
        self._offered = 0
        self._ends_with_ok = False
        self.groups = 0

    def said(self, data: bytes) -> Iterator[Said]:
        self._asked += data
        while packet := _next(self._asked):
            message, number, content = packet
            if number != 0 or self.groups == 0:
                yield self._greeted(message, content)
            else:
                yield self._understand(message, content)

    def _greeted(self, message: bytes, content: bytes) -> Said:
        """A part of the greeting, or what a statement loads."""
        if self.groups == 0:
            (wanted,) = struct.unpack_from("<I", content)
            self._ends_with_ok = bool(wanted & self._offered & _ENDS_WITH_OK)
            self.groups = 1
        return Said(message, None, self.groups - 1)

    def _understand(self, message: bytes, content: bytes) -> Said:
        command, rest = content[0], content[1:]
        if command in (_QUIT, _SEND_LONG, _CLOSE):
            return Said(message, None, self.groups)  # there is no reply
        statement: str | None = None
        kind: _Kind = "greeting" if command == _CHANGE_USER else "packet"
        if command == _QUERY:
            kind, statement = "result", _text(rest)
        elif command == _EXECUTE:
            (id,) = struct.unpack_from("<i", rest)
            kind, statement = "result", self._prepared.get(self._last if id == -1 else id, "")
        elif command == _PREPARE:
            kind = "prepared"
        self._pending.append((kind, _text(rest) if kind == "prepared" else ""))
        group = self.groups
        self.groups += 1
        return Said(message, statement, group)

    def replied(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        self._answered += data
        while packet := _next(self._answered):
            message, _, content = packet
            if self._reader is None:
                if not self._pending:  # such as that the server shuts down
                    yield message, False
                    continue
                kind, text = self._pending.popleft()
                self._reader = self._read(kind, text)
                next(self._reader)
            if content[:1] == b"\x0a" and self.groups == 0:
                message = self._without_offers(message)
            try:
                self._reader.send(content)
            except StopIteration:
                self._reader = None
                yield message, True
            else:
                yield message, False

    def _without_offers(self, message: bytes) -> bytes:
        """The server's first packet (`HandshakeV10`): version, thread, half of a salt, and what it can do."""
        at = message.index(b"\0", 5) + 1 + 4 + 8 + 1
        (low,) = struct.unpack_from("<H", message, at)
        (high,) = struct.unpack_from("<H", message, at + 5)
        self._offered = (low | high << 16) & ~(_ENCRYPTS | _COMPRESSES)
        return message[:at] + struct.pack("<H", self._offered & 0xFFFF) + message[at + 2 :]

    # --- where replies end

    def _read(self, kind: _Kind, text: str) -> _Reader:
        match kind:
            case "packet":
                yield
            case "greeting":
                while (yield)[0] not in (0x00, 0xFF):
                    pass
            case "prepared":
                yield from self._read_prepared(text)
            case "result":
                while (yield from self._read_result()):
                    pass

    def _read_prepared(self, text: str) -> _Reader:
        content = yield
        if content[0] != 0x00:
            return
        id, columns, parameters = struct.unpack_from("<iHH", content, 1)
        self._prepared[id] = text
        self._last = id
        for described in (parameters, columns):
            for _ in range(described + (described > 0 and not self._ends_with_ok)):
                yield

    def _read_result(self) -> Generator[None, bytes, bool]:
        """Whether another result follows."""
        content = yield
        if content[0] == 0x00:
            return _is_followed(content)
        if content[0] == 0xFF:
            return False
        if content[0] == 0xFB:  # it wants a file, and says more when it has it
            return True
        columns, _ = _number(content, 0)
        for _ in range(columns + (not self._ends_with_ok)):
            yield
        while True:
            content = yield
            if content[0] == 0xFF:
                return False
            if content[0] == 0xFE and self._ends_with_ok and len(content) < _WHOLE:
                return _is_followed(content)
            if content[0] == 0xFE and not self._ends_with_ok and len(content) < 9:
                return bool(struct.unpack_from("<H", content, 3)[0] & _MORE_RESULTS)


def _is_followed(content: bytes) -> bool:
    """An OK packet: affected rows, the last id, the status."""
    _, at = _number(content, 1)
    _, at = _number(content, at)
    return bool(struct.unpack_from("<H", content, at)[0] & _MORE_RESULTS)


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number that has its length before it, and where it ends."""
    first = content[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(content[at + 1 : at + 1 + size], "little"), at + 1 + size


def _next(buffer: bytearray) -> tuple[bytes, int, bytes] | None:
    """The first packet with those that continue it, its number, and its content."""
    at, content, number = 0, b"", None
    while True:
        if len(buffer) < at + 4:
            return None
        length = int.from_bytes(buffer[at : at + 3], "little")
        if len(buffer) < at + 4 + length:
            return None
        number = buffer[at + 3] if number is None else number
        content += buffer[at + 4 : at + 4 + length]
        at += 4 + length
        if length < _WHOLE:
            break
    message = bytes(buffer[:at])
    del buffer[:at]
    return message, number, content


def _text(raw: bytes) -> str:
    return re.sub(r"\s+", " ", raw.decode(errors="replace")).strip()
