"""SQLite as the target: a file, and no server that could be killed.  A worker that is frozen as the only
writer stops the others, until it is continued."""

import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from retrysafe import Guard, stores
from retrysafe import sqlite3 as joined
from retrysafe.stores.contract import Store
from tools.crash import audit, traps
from tools.crash.handlers import Blocking, Handlers, Sessions, SessionsAsync
from tools.crash.targets import Target

PATIENCE = 30.0
"""Seconds for which the auditor waits for a file that is locked."""


class SQLite(Target):
    ways: ClassVar[Mapping[str, Sequence[str]]] = {
        "sqlite3": (),
        "sqlalchemy": (),
        "sqlalchemy async": ("aiosqlite", "greenlet"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)

    def prepare(self) -> str:
        file = self.folder / f"orders-{next(self._numbers)}.db"
        with closing(sqlite3.connect(file)) as connection, connection:
            for statement in audit.CREATE:
                connection.execute(statement)
        return f"sqlite:///{file}"

    def read(self, url: str) -> audit.Snapshot:
        file = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENCE)) as connection:
            connection.execute("BEGIN")

            def query(statements: Sequence[str]) -> list[list[Any]]:
                return [connection.execute(statement).fetchall() for statement in statements]

            return audit.read(query)

    @classmethod
    def install_traps(cls) -> None:
        traps.commits_of_sqlite3()
        traps.commits_of_sqlalchemy()

    @classmethod
    def open(cls, url: str, way: str) -> str | Store:
        match way:
            case "sqlalchemy":
                return stores.from_engine(create_engine(url))
            case "sqlalchemy async":
                return stores.from_engine(create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:")))
            case _:
                return url

    @classmethod
    def handlers(cls, guard: Guard, url: str, way: str) -> Handlers:
        match way:
            case "sqlalchemy":
                return Sessions(guard)
            case "sqlalchemy async":
                return SessionsAsync(guard)
            case _:
                return Blocking(lambda: joined.connection(guard), "?")
