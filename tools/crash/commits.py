"""The place called COMMIT, in every driver that we have: around the statement that ends a transaction."""

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from tools.crash.traps import place, replace


def of_sqlalchemy() -> None:
    do_commit: Callable[..., None] = DefaultDialect.do_commit

    def done(self: DefaultDialect, dbapi_connection: object) -> None:
        with place("COMMIT"):
            do_commit(self, dbapi_connection)

    replace(DefaultDialect, "do_commit", done)


def of_sqlite3() -> None:
    from retrysafe.sqlite3 import JoinedConnection

    really_commit = JoinedConnection.really_commit

    def committed(self: JoinedConnection) -> None:
        with place("COMMIT"):
            really_commit(self)

    replace(JoinedConnection, "really_commit", committed)


def of_psycopg() -> None:
    from psycopg import AsyncTransaction, Transaction

    leave, leave_async = Transaction.__exit__, AsyncTransaction.__aexit__

    def left(self: Transaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return leave(self, kind, *rest)
        with place("COMMIT"):
            return leave(self, kind, *rest)

    async def left_async(self: AsyncTransaction, kind: Any, *rest: Any) -> bool:
        if kind is not None or self.savepoint_name:
            return await leave_async(self, kind, *rest)
        with place("COMMIT"):
            return await leave_async(self, kind, *rest)

    replace(Transaction, "__exit__", left)
    replace(AsyncTransaction, "__aexit__", left_async)
