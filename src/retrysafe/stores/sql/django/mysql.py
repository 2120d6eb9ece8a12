"""The store in a MySQL or MariaDB database of Django's, by whichever driver Django has for it.

That is mysqlclient, or PyMySQL in its place (`pymysql.install_as_MySQLdb()`).  Both block, so the batches of
an event loop are run in threads.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from retrysafe._core.times import Duration
from retrysafe.stores.admin import Admin
from retrysafe.stores.options import check_deadline
from retrysafe.stores.queue import Row
from retrysafe.stores.sql.backend import Execute
from retrysafe.stores.sql.blocking import BlockingAdminConnection, BlockingConnection, BlockingDatabase
from retrysafe.stores.sql.cleanup import Cleanup
from retrysafe.stores.sql.django.connect import connect_mysql
from retrysafe.stores.sql.drivers import Texts
from retrysafe.stores.sql.keeper import SQLRenewer
from retrysafe.stores.sql.mysql.backend import BACKEND
from retrysafe.stores.sql.store import SQLStore


class DjangoMySQLStore(SQLStore):
    """Records in a database of MySQL or MariaDB, by its alias."""

    joint = BACKEND.joint

    def __init__(
        self, alias: str, *, deadline: float, cleanup_interval: Duration | None, migrated_by: str
    ) -> None:
        check_deadline(deadline)
        self._alias = alias
        self._deadline = deadline
        self._migrated_by = migrated_by
        self._is_prepared = False
        self._cleanup = Cleanup(cleanup_interval)
        self._own = BlockingDatabase(self._open, deadline, BACKEND)
        super().__init__(self._own)

    def open_keeper(self) -> SQLRenewer:
        return SQLRenewer(self._own.executor(), self._deadline, self._cleanup)

    def open_admin(self) -> Admin:
        return BACKEND.admin(self._operator, self._deadline)

    def close(self) -> None:
        self._own.close()

    def _open(self) -> BlockingConnection:
        connection = self._connect()
        try:
            connection.run(self._check)
        except BaseException:
            connection.discard()
            raise
        self._is_prepared = True
        return connection

    def _check(self, execute: Execute) -> None:
        BACKEND.check(execute, prepared=self._is_prepared, migrated_by=self._migrated_by)

    def _operator(self) -> BlockingAdminConnection:
        return BlockingAdminConnection(self._connect, self._deadline, BACKEND)

    def _connect(self) -> BlockingConnection:
        driver = connect_mysql(self._alias)
        connection = BlockingConnection(_Statements(driver), driver, lambda: _answers(driver))
        try:
            connection.run(BACKEND.begin)
        except BaseException:
            connection.discard()
            raise
        return connection


class _Statements:
    """Runs them on a connection of the driver's, and makes trouble of what it raises."""

    def __init__(self, driver: Any) -> None:  # noqa: ANN401 - of either driver
        self.largest = 0
        self._texts = Texts(driver, driver.cursor)

    def __call__(self, sql: str, arguments: Mapping[str, object], /) -> Sequence[Row]:
        assert not arguments, "they are a part of the text"
        [rows] = self.together([sql])
        return rows

    def together(self, texts: Sequence[str], /) -> list[Sequence[Row]]:
        with _troubled():
            return self._texts.together(texts)


@contextmanager
def _troubled() -> Generator[None]:
    try:
        yield
    except Exception as error:
        raise BACKEND.trouble(error) from error


def _answers(driver: Any) -> bool:  # noqa: ANN401 - of either driver
    driver.ping()
    return True
