"""Reservations and completions of one batch, as one call of the function `retrysafe_batch_1`.

Its arguments are arrays, one for each argument of `reserve` and of `finish`, and the place of each call in
the batch.  Its rows name that place, so a result cannot be handed to another caller.

It knows no payloads: a reservation that brings one, or says when it is due, is a statement of its own.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from retrysafe.stores.queue import Arguments, Call, Outcome, Row

_WORTH = 2
"""Reservations and completions, from which on it is."""

Encode = Callable[[str, list[object]], object]
"""An array as a driver takes it, of elements of this type."""

_RESERVE = {
    "id": "bytea",
    "token": "bytea",
    "fingerprint": "bytea",
    "mode": "word",
    "lease": "float8",
    "retention": "float8",
    "hold": "float8",
    "door": "word",
    "scope": "word",
    "key": "text",
    "action": "word",
    "target": "word",
    "request_id": "text",
    "correlation_id": "text",
    "details": "word",
    "retention_from": "word",
}

_FINISH = {
    "id": "bytea",
    "token": "bytea",
    "state": "word",
    "status": "int4",
    "headers": "word",
    "body": "bytea",
    "omitted": "int4",
    "details": "word",
    "announced": "int4",
}


def is_worth(calls: Sequence[Call]) -> bool:
    """Whether the function is less work for the server than a statement for each call."""
    return sum(_done_by_function(call) is not None for call in calls) >= _WORTH


def _done_by_function(call: Call) -> str | None:
    """What the function does of this call, if it does it."""
    name, arguments = call
    if name == "reserve":
        return name if arguments["payload"] is None and arguments["due_in"] is None else None
    return name if name == "finish" else None


class Combined:
    """The calls of a batch, those that the function can do as one call of it."""

    def __init__(self, calls: Sequence[Call], encode: Encode) -> None:
        self._names = [_done_by_function(call) for call in calls]
        self._others = [place for place, name in enumerate(self._names) if name is None]
        arguments: Arguments = {}
        for name, columns in (("reserve", _RESERVE), ("finish", _FINISH)):
            places = [place for place, named in enumerate(self._names) if named == name]
            arguments[f"{name}_place"] = encode("int4", [*places])
            of = [calls[place][1] for place in places]
            for column, kind in columns.items():
                arguments[f"{name}_{column}"] = encode(kind, [each[column] for each in of])
        self.calls: list[Call] = [("batch", arguments), *(calls[place] for place in self._others)]

    def apart(self, outcomes: Sequence[Outcome], rows: Sequence[Row]) -> list[Outcome]:
        """The outcomes of all calls, out of the rows of the function and the outcomes of the others."""
        found: dict[object, Row] = {row[0]: row for row in rows}
        others = dict(zip(self._others, outcomes, strict=True))
        return [
            others[place] if place in others else _rows(name, found.get(place))
            for place, name in enumerate(self._names)
        ]


def _rows(name: str | None, row: Row | None) -> Outcome:
    if row is None:
        return ()
    return [row[1:]] if name == "reserve" else [row[1:2]]


# --- arrays in PostgreSQL's binary form

_TYPES = {"bytea": 17, "int4": 23, "text": 25, "word": 25, "float8": 701}
"""By the number of a type in PostgreSQL's catalogue, which is the same in every server.  A word is a text
that is the same in many rows."""

_head = Struct("!iiiii").pack  # dimensions, whether there are NULLs, type, length, first index
_nothing = Struct("!iii").pack
_length = Struct("!i").pack
_NULL = _length(-1)
_float = Struct("!id").pack
_int = Struct("!ii").pack


def _bytea(value: bytes) -> bytes:
    return _length(len(value)) + value


def _text(value: str | None) -> bytes:
    return _NULL if value is None else _bytea(value.encode())


@lru_cache(maxsize=256)
def _float8(value: float) -> bytes:
    return _float(8, value)


@lru_cache(maxsize=256)
def _int4(value: int) -> bytes:
    return _int(4, value)


_ELEMENTS: dict[str, Callable[[Any], bytes]] = {
    "bytea": _bytea,
    "int4": _int4,
    "text": _text,
    "word": lru_cache(maxsize=1024)(_text),
    "float8": _float8,
}

_EMPTY = {kind: _nothing(0, 0, number) for kind, number in _TYPES.items()}


def binary(kind: str, values: list[object]) -> bytes:
    """An array of one dimension."""
    if not values:
        return _EMPTY[kind]
    return _head(1, 1, _TYPES[kind], len(values), 1) + b"".join(map(_ELEMENTS[kind], values))


# --- arrays as text, which every driver can send


def literal(kind: str, values: list[object]) -> str:
    """An array of one dimension, as SQL writes it."""
    return "{" + ",".join(_element(kind, value) for value in values) + "}"


def _element(kind: str, value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if kind in ("text", "word"):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
