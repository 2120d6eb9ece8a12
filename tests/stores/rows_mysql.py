"""The tables of a MariaDB database, and its time, from behind the store's back."""

import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import pymysql

from retrysafe.testing.mariadb import MariaDBServer

TABLES = ("retrysafe_records", "retrysafe_audit", "retrysafe_verdicts", "retrysafe_routes")


def connect(url: str) -> "pymysql.Connection[Any]":
    """A connection that commits each statement by itself."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
        charset="utf8mb4",
        autocommit=True,
    )


class Rows:
    """A database, and a user of it who sees a clock that stands still until it is put forward.

    The clock is a setting of a session.  The server sets it in each session of a user who is no
    administrator, and sessions from before are ended: the store opens others.
    """

    def __init__(self, server: MariaDBServer) -> None:
        self._server = server
        self._whole = server.new_database()
        self._connection = connect(self._whole)
        self.database = self._whole.rpartition("/")[2]
        self._user = f"clock_{secrets.token_hex(4)}"
        self.execute(f"CREATE USER {self._user}@'127.0.0.1' IDENTIFIED BY 'clock'")
        self.execute(f"GRANT ALL ON {self.database}.* TO {self._user}@'127.0.0.1'")
        [(self._now,)] = self.execute("SELECT UNIX_TIMESTAMP(NOW(6))")
        self.elapse(0.0)
        self.url = f"mysql://{self._user}:clock@127.0.0.1:{server.port}/{self.database}"

    def execute(self, sql: str, arguments: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def elapse(self, seconds: float) -> None:
        self._now = float(self._now) + seconds
        self.execute(f"SET GLOBAL init_connect = 'SET SESSION timestamp = {self._now:.6f}'")
        self.execute(f"KILL HARD CONNECTION USER {self._user}@'127.0.0.1'")

    def lose_lease(self, id: bytes) -> None:
        self.execute("UPDATE retrysafe_records SET lease_until = NULL WHERE id = %s", [id])

    def forget(self) -> None:
        """Empty the tables that are there."""
        there = {name for (name,) in self.execute("SHOW TABLES")}
        for table in TABLES:
            if table in there:
                self.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self.execute("SET GLOBAL init_connect = ''")
        self.execute(f"DROP USER {self._user}@'127.0.0.1'")
        self._connection.close()
        self._server.drop_database(self._whole)
