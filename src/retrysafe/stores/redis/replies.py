"""Reads replies of the server: RESP2, as the protocol's specification has it.

redis-py's reader makes an object and several calls for each word.  A batch of a hundred calls has a hundred
words, most of them a number, and this is what is left to do for them.
"""

from typing import Any


class Refusal(Exception):
    """An error that the server replied with."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code, _, self.text = message.partition(" ")


class _Incomplete(Exception):
    """More has to be read."""


_INCOMPLETE = _Incomplete()


class Replies:
    """The replies to so many commands, as they arrive."""

    __slots__ = ("_buffer", "_missing", "found")

    def __init__(self, number: int) -> None:
        self.found: list[Any] = []
        self._missing = number
        self._buffer = b""

    def feed(self, data: bytes) -> bool:
        """Take what has arrived; whether it was all."""
        buffer = self._buffer + data if self._buffer else data
        found = self.found
        place = 0
        try:
            while self._missing:
                value, place = _read(buffer, place)
                found.append(value)
                self._missing -= 1
        except _Incomplete:
            self._buffer = buffer[place:]
            return False
        if place != len(buffer):
            raise ValueError("more replies than there were commands")
        return True


def _read(buffer: bytes, place: int) -> tuple[Any, int]:
    end = buffer.find(b"\r\n", place)
    if end < 0:
        raise _INCOMPLETE
    kind = buffer[place]
    after = end + 2
    if kind == 58:  # :
        return int(buffer[place + 1 : end]), after
    if kind == 36:  # $
        length = int(buffer[place + 1 : end])
        if length < 0:
            return None, after
        if len(buffer) < after + length + 2:
            raise _INCOMPLETE
        return buffer[after : after + length], after + length + 2
    if kind == 42:  # *
        number = int(buffer[place + 1 : end])
        if number < 0:
            return None, after
        values: list[Any] = []
        for _ in range(number):
            # A record is an array of strings, which are read without a call for each.
            if buffer[after : after + 1] == b"$":
                end = buffer.find(b"\r\n", after)
                if end < 0:
                    raise _INCOMPLETE
                length = int(buffer[after + 1 : end])
                after = end + 2
                if length < 0:
                    values.append(None)
                    continue
                end = after + length
                values.append(buffer[after:end])
                after = end + 2
            else:
                value, after = _read(buffer, after)
                values.append(value)
        if after > len(buffer):
            raise _INCOMPLETE
        return values, after
    if kind == 43:  # +
        return buffer[place + 1 : end], after
    if kind == 45:  # -
        return Refusal(buffer[place + 1 : end].decode("utf-8", "replace")), after
    raise ValueError(f"a reply begins with {kind}, which no reply does")
