"""The store's operations on Django's own connection, in whichever transaction it is in.

Statements go to the driver's connection, past Django's cursors: neither `assertNumQueries` nor a query log of
the application sees them, and no wrapper of the application's changes them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.stores.queue import Arguments, Operation, Row
from retrysafe.stores.sql.drivers import plain
from retrysafe.stores.sql.join import Joint
from retrysafe.stores.sql.store import SQLStore

T = TypeVar("T")

MIGRATE = "python manage.py migrate retrysafe"
"""The command that makes the tables."""

PATIENCE = 2.0
"""Seconds to wait for the row of another transaction: as long as a store has for an operation."""

_UNDEFINED_TABLE = "42P01"
_NO_SUCH_TABLE = 1146


class OwnConnection:
    """A queue without a queue: the thread's own connection runs an operation at once."""

    def __init__(self, alias: str, joint: Callable[[], Joint]) -> None:
        self._alias = alias
        self._joint = joint

    def perform(
        self,
        operation: Operation[T],
        id: bytes,  # noqa: ARG002 - as any queue
        *,
        size: int = 0,  # noqa: ARG002 - as any queue
        urgent: bool = False,  # noqa: ARG002 - as any queue
    ) -> T:
        connection = connections[self._alias]
        run, joint = fetcher(connection), self._joint()
        with reported(), _as_it_was(connection):
            return joint.perform(operation, lambda sql, given: run(sql, {**given, "patience": PATIENCE}))


class OwnDatabase:
    """The same, as a database has it."""

    def __init__(self, alias: str, joint: Callable[[], Joint]) -> None:
        self.queue = OwnConnection(alias, joint)

    @property
    def async_queue(self) -> Any:  # noqa: ANN401 - there is none
        raise AssertionError("coroutines reach Django's own connection by its thread")


def store_on_own_connection(alias: str, joint: Callable[[], Joint]) -> SQLStore:
    return SQLStore(OwnDatabase(alias, joint))


Fetch = Callable[[str, Mapping[str, object]], Sequence[Row]]


def fetcher(connection: BaseDatabaseWrapper) -> Fetch:
    """How a statement with `:named` arguments is run on Django's connection, in the driver's own way."""
    connection.ensure_connection()
    driver: Any = connection.connection
    if connection.vendor == "sqlite":

        def fetch_sqlite(sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:
            rows: list[Row] = driver.execute(sql, arguments).fetchall()
            return rows

        return fetch_sqlite
    if connection.vendor == "mysql":

        def fetch_mysql(sql: str, arguments: Mapping[str, object]) -> Sequence[Row]:  # noqa: ARG001 - values are in it
            with closing(driver.cursor()) as cursor:
                cursor.execute(sql)
                return [plain(row) for row in cursor.fetchall()] if cursor.description else ()

        return fetch_mysql
    from retrysafe.stores.sql.cursors import fetch  # psycopg is loaded, because Django has connected by it

    def fetch_postgres(sql: str, arguments: Arguments | Mapping[str, object]) -> Sequence[Row]:
        return fetch(driver, sql, dict(arguments))

    return fetch_postgres


@contextmanager
def reported() -> Generator[None]:
    """Errors of Django's and of its drivers as those of a store."""
    try:
        yield
    except Error as error:
        raise _translated(error) from error
    except Exception as error:
        if not is_of_driver(error):
            raise
        raise _translated(error) from error


def is_of_driver(error: Exception) -> bool:
    """Whether an error comes from a driver past Django, which wraps those of its own cursors."""
    return type(error).__module__.partition(".")[0] in ("sqlite3", "psycopg", "pymysql", "MySQLdb")


def _translated(error: Exception) -> StoreUnavailable | SchemaMismatch:
    words = str(error).partition("\n")[0]
    is_missing = getattr(error, "sqlstate", None) == _UNDEFINED_TABLE or error.args[:1] == (_NO_SUCH_TABLE,)
    if is_missing or "no such table: retrysafe_" in words:
        return SchemaMismatch(f"this database has no tables of retrysafe: run `{MIGRATE}`")
    return StoreUnavailable(f"the database could not read or store a record: {words}")


@contextmanager
def _as_it_was(connection: BaseDatabaseWrapper) -> Generator[None]:
    """Leave a transaction as it was: on PostgreSQL not failed, and with its own patience for locks."""
    if connection.vendor == "sqlite" or not connection.in_atomic_block:
        yield
        return
    driver: Any = connection.connection
    if connection.vendor == "mysql":
        with _undone_if_it_fails(connection, driver):
            yield
        return
    [patience] = driver.execute("SELECT current_setting('lock_timeout')").fetchone()
    driver.execute("SAVEPOINT retrysafe")
    try:
        yield
    except Exception:
        driver.execute("ROLLBACK TO SAVEPOINT retrysafe")
        raise
    finally:
        driver.execute("RELEASE SAVEPOINT retrysafe")
        driver.execute("SELECT set_config('lock_timeout', %s, true)", [patience])


@contextmanager
def _undone_if_it_fails(connection: BaseDatabaseWrapper, driver: Any) -> Generator[None]:  # noqa: ANN401 - any
    """On MySQL an operation is several statements, and a deadlock leaves nothing of the transaction."""
    from retrysafe.stores.sql.mysql.join import rolls_back

    def execute(sql: str) -> None:
        with closing(driver.cursor()) as cursor:
            cursor.execute(sql)

    execute("SAVEPOINT retrysafe")
    try:
        yield
    except Exception as error:
        if rolls_back(error):
            connection.needs_rollback = True
        else:
            execute("ROLLBACK TO SAVEPOINT retrysafe")
        raise
    execute("RELEASE SAVEPOINT retrysafe")
