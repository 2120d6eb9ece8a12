"""What a client and a Redis or Valkey server say to each other: RESP, the protocol's second or third version.

A command is an array of strings and a group of its own, and so is the reply to it.  What the server says
without being asked (a push of the third version) belongs to no group.
"""

import hashlib
from collections.abc import Iterator, Sequence

from retrysafe.testing.conversations import Said

_scripts: dict[str, str] = {}
"""Texts of scripts by their digest, which another connection may have loaded."""

_NESTED = b"*%~>|"
"""Types of values that have others in them: arrays, maps, sets, pushes and attributes."""


class RedisConversation:
    """The statement of a script has its text beside its digest, once any client has sent the text."""

    def __init__(self) -> None:
        self._asked = bytearray()
        self._answered = bytearray()
        self.groups = 0

    def said(self, data: bytes) -> Iterator[Said]:
        self._asked += data
        while (found := _command(self._asked)) is not None:
            words, end = found
            message = bytes(self._asked[:end])
            del self._asked[:end]
            group = self.groups
            self.groups += 1
            yield Said(message, _statement(words), group)

    def replied(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        self._answered += data
        while (end := _value(self._answered, 0)) is not None:
            message = bytes(self._answered[:end])
            del self._answered[:end]
            # An attribute is said before the reply that it is about.
            yield message, message[:1] not in b">|"


def _command(buffer: bytearray) -> tuple[list[bytes], int] | None:
    """The words of the first command, and where it ends; `None`: it is not complete."""
    if (header := _line(buffer, 0)) is None:
        return None
    line, at = header
    if line[:1] != b"*":
        return line.split(), at  # as people type it
    words: list[bytes] = []
    for _ in range(int(line[1:])):
        if (header := _line(buffer, at)) is None:
            return None
        line, at = header
        end = at + int(line[1:])
        if len(buffer) < end + 2:
            return None
        words.append(bytes(buffer[at:end]))
        at = end + 2
    return words, at


def _line(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    end = buffer.find(b"\r\n", at)
    return None if end < 0 else (bytes(buffer[at:end]), end + 2)


def _value(buffer: bytearray, at: int) -> int | None:
    """Where the value that begins here ends."""
    if (header := _line(buffer, at)) is None:
        return None
    line, at = header
    kind = line[:1]
    if kind in b"$!=":  # strings with a length
        length = int(line[1:])
        end = at if length < 0 else at + length + 2
        return end if len(buffer) >= end else None
    if kind not in _NESTED:
        return at
    for _ in range(max(0, int(line[1:])) * (2 if kind in b"%|" else 1)):
        if (inside := _value(buffer, at)) is None:
            return None
        at = inside
    return at


def _statement(words: Sequence[bytes]) -> str:
    texts = [_blanks(word) for word in words]
    command = texts[0].upper() if texts else ""
    if command == "SCRIPT" and len(texts) > 2 and texts[1].upper() == "LOAD":
        _note(words[2])
    elif command in ("EVAL", "EVAL_RO") and len(texts) > 1:
        _note(words[1])
    elif command in ("EVALSHA", "EVALSHA_RO") and len(texts) > 1:
        texts.insert(2, _scripts.get(texts[1].lower(), ""))
    return " ".join(filter(None, texts))


def _blanks(raw: bytes) -> str:
    return " ".join(raw.decode(errors="replace").split())


def _note(script: bytes) -> None:
    # SHA-1 is the server's own name for a script.
    _scripts[hashlib.sha1(script, usedforsecurity=False).hexdigest()] = _blanks(script)
