"""The operator's end of a PostgreSQL database, and records in it, for the tests of either."""

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg

from retrysafe._core.model import Claim, Final, Record
from retrysafe.stores.admin import Query
from retrysafe.stores.queue import Operation
from retrysafe.stores.sql import operations
from retrysafe.stores.sql.admin_session import AdminSession
from retrysafe.stores.sql.postgresql.admin import WRITE, PostgresAdmin
from retrysafe.stores.sql.postgresql.connect import Address, Source
from retrysafe.stores.sql.postgresql.executor import PsycopgAdminConnection
from retrysafe.testing.stores import a_claim

T = TypeVar("T")

PATIENT = 20.0
"""Seconds.  A busy machine is no fault of the store."""


def admin_at(url: str, deadline: float = PATIENT) -> PostgresAdmin:
    return PostgresAdmin(lambda: connection_at(url), deadline)


def connection_at(url: str) -> PsycopgAdminConnection:
    return PsycopgAdminConnection(Source(Address.parse(url, PATIENT).connect))


class Books:
    """Records made with the statements that a service uses, and time that passes when it is told to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.admin = admin_at(url)
        self.admin.migrate()
        self.direct = psycopg.connect(url, autocommit=True)
        self._session = AdminSession(lambda: connection_at(url), PATIENT)

    def perform(self, operation: Operation[T]) -> T:
        with self._session.transaction(WRITE, PATIENT) as transaction:
            return transaction.perform(operation)

    def reserve(self, key: str, **more: object) -> Claim:
        claim = a_claim(key)._replace(**more)  # type: ignore[arg-type]
        self.perform(operations.reserve(claim))
        return claim

    def finish(self, key: str, final: Final, **more: object) -> Claim:
        claim = self.reserve(key, **more)
        assert self.perform(operations.finish(claim, final))
        return claim

    def abandoned(self, key: str = "key") -> Record:
        claim = self.reserve(key, hold=86400.0)
        self.elapse(30.0)
        return self.record(claim)

    def record(self, claim: Claim | Record) -> Record:
        found = self.perform(operations.look(claim.id))
        assert found is not None
        return found.record

    def keys(self, query: Query = Query()) -> list[str | None]:  # noqa: B008 - frozen
        return [sighting.record.key for sighting in self.admin.list(query)]

    def elapse(self, seconds: float) -> None:
        """By the server's clock no time passes, so everything is moved into the past."""
        times = "lease_until created_at updated_at completed_at expires_at held_until".split()
        moved = ", ".join(f"{time} = {time} - {seconds} * interval '1 second'" for time in times)
        self.execute(f"UPDATE retrysafe_records SET {moved}")

    def execute(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        cursor = self.direct.execute(sql.encode(), arguments)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self.admin.close()
        self._session.close()
        self.direct.close()


def warnings_of(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]
