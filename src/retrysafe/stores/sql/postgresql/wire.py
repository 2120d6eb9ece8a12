"""libpq: what a statement becomes on its way to the server, and what comes back.

Statements are written with `:named` arguments and sent with numbered ones.  Bytes and text travel as they
are, numbers as text; results come in binary form.  The name of a prepared statement is a digest of its SQL,
so that behind a pooler, where sessions are shared, a name can never stand for other SQL than ours.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING

from retrysafe.errors import UnreadableRecord
from retrysafe.stores.queue import Arguments, Row
from retrysafe.stores.sql import statements

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

_ARGUMENT = re.compile(r":(\w+)")

_HOT = frozenset(
    "batch reserve take_over look checkpoint finish finish_received release renew settled".split()
)
"""What requests and leases wait for is parsed and planned once per connection.  The rest is planned anew each
time, with its real arguments and for the table as it is."""

TEXT, BINARY = 0, 1

Value = bytes | None


def _int(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _bool(value: bytes) -> bool:
    return value != b"\0"


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnreadableRecord(
            "a text in the database is not UTF-8, so another program has written it"
        ) from None


_double = Struct("!d").unpack


def _float(value: bytes) -> float:
    number: float = _double(value)[0]
    return number


_READERS: dict[int, Callable[[bytes], object]] = {
    16: _bool,
    17: bytes,  # bytea
    20: _int,
    21: _int,
    23: _int,
    25: _text,
    701: _float,
    2278: bytes,  # void
}
"""By the number of a type in PostgreSQL's catalogue, which is the same in every server."""


class Statement:
    """One statement, ready to be sent."""

    __slots__ = ("_readers", "arguments", "hot", "name", "text")

    def __init__(self, name: str, sql: str) -> None:
        self.arguments: list[str] = list(dict.fromkeys(_ARGUMENT.findall(sql)))
        numbers = {argument: f"${number}" for number, argument in enumerate(self.arguments, 1)}
        text = _ARGUMENT.sub(lambda use: numbers[use[1]], sql)
        self.text = text.encode()
        self.name = b"retrysafe_" + sha256(self.text).hexdigest()[:32].encode()
        self.hot = name in _HOT
        self._readers: list[Callable[[bytes], object]] | None = None

    def bind(self, arguments: Arguments) -> tuple[list[Value], list[int]]:
        """The values in the order of their numbers, and the format of each."""
        values: list[Value] = []
        formats: list[int] = []
        for name in self.arguments:
            value = arguments[name]
            if value is None or isinstance(value, bytes):
                values.append(value)
                formats.append(BINARY)
            elif isinstance(value, str):
                # In binary form, too: a text ends where it ends, and not at a NUL in it.
                values.append(value.encode())
                formats.append(BINARY)
            else:
                values.append(repr(value).encode())
                formats.append(TEXT)
        return values, formats

    def read(self, result: "PGresult") -> Sequence[Row]:
        count = result.ntuples
        if not count:
            return ()
        if self._readers is None:
            self._readers = [_READERS[result.ftype(column)] for column in range(result.nfields)]
        value = result.get_value
        columns = list(enumerate(self._readers))
        return [
            [None if (raw := value(row, column)) is None else read(raw) for column, read in columns]
            for row in range(count)
        ]


@cache
def known() -> dict[str, Statement]:
    """Every statement of the dialect, by its name."""
    return {name: Statement(name, sql) for name, sql in statements.load("postgresql").items()}
