"""How connections are opened: from an address, from a pool of the application's, or by a function of the
application's.

What the address says is what is done.  What it leaves open gets a value that suits a store: it must notice a
dead server within seconds, and never write to one that only follows another.
"""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict

from retrysafe.errors import ConfigurationError, StoreUnavailable
from retrysafe.stores.sql.postgresql.session import Raw, SendMode, Session

Connection = psycopg.Connection[Any]

_PARAMETERS: dict[str, str | int] = {
    "fallback_application_name": "retrysafe",  # in pg_stat_activity, unless the address names another
    "client_encoding": "UTF8",
    # Half a minute after the last word a silent peer is asked, then every ten seconds, three times.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds until what was sent must have arrived
}
"""No `options`: poolers refuse them."""

_LEAST_TIMEOUT = 2
"""Seconds to open a connection; libpq knows no shorter time."""


class Address(NamedTuple):
    """Where the server is, with every parameter for libpq."""

    parameters: dict[str, Any]

    @classmethod
    def parse(cls, conninfo: str, deadline: float) -> "Address":
        try:
            given = conninfo_to_dict(conninfo)
        except psycopg.Error:
            # Its words quote the address, and with it perhaps the password.
            raise ConfigurationError(
                "this is not a valid PostgreSQL address: expected "
                "postgresql://user:password@host:5432/database, with special characters percent-encoded"
            ) from None
        return cls.complete(given, deadline)

    @classmethod
    def complete(cls, given: dict[str, Any], deadline: float) -> "Address":
        parameters: dict[str, Any] = {**_PARAMETERS, **given}
        if "PGCONNECT_TIMEOUT" not in os.environ:
            parameters.setdefault("connect_timeout", max(_LEAST_TIMEOUT, math.ceil(deadline)))
        if "," in str(given.get("host", "")):
            parameters.setdefault("target_session_attrs", "read-write")
        return cls(parameters)

    def connect(self) -> Connection:
        return psycopg.connect(**self.parameters, autocommit=True)


class Opened(Raw, Protocol):
    """A connection that was opened for the store alone, such as psycopg's own."""

    def close(self) -> None: ...


class Source:
    """Gives sessions, each on a connection of its own."""

    def __init__(self, connect: "Callable[[], Opened]") -> None:
        self._connect = connect
        self.mode = SendMode()

    def open(self) -> Session:
        """Connect.  It blocks, for as long as the address allows."""
        try:
            connection = self._connect()
        except psycopg.Error as error:
            raise unreachable(error) from None
        return self.adopt(connection, connection.close)

    def adopt(self, connection: Raw, end: Callable[[], None]) -> Session:
        return Session(connection, self.mode, end)


def unreachable(error: Exception) -> StoreUnavailable:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return StoreUnavailable(f"cannot connect to PostgreSQL: {'; '.join(lines[:2]) or type(error).__name__}")
