"""The reference application with an engine of SQLAlchemy's, blocking and asynchronous, in both modes.

The store has it (`stores.from_engine`), and in transactional mode the application's sessions join by it.  In
`make test` a sample: stores with each driver are tried by `tests/stores`, and sessions by
`tests/transactions`, so here it is one driver of each kind that has to meet an adapter.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import AdapterSuite, FailuresTx, Sqlite, Stored, TransactionalSuite
from retrysafe.testing.adapters.limits import GTHREAD, Limits
from retrysafe.testing.adapters.mariadb import MariaDB
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from tests.adapters.sampling import sample


@sample()
class TestPsycopg(AdapterSuite):
    framework = "asgi"
    backing = Postgres("psycopg")


@sample(Stored)
class TestAsyncpg(AdapterSuite):
    framework = "asgi"
    backing = Postgres("asyncpg")


@sample()
class TestPyMySQL(AdapterSuite):
    framework = "asgi"
    backing = MariaDB("pymysql")


@sample(Stored.test_a_response_that_says_no)
class TestAsyncmy(AdapterSuite):
    framework = "asgi"
    backing = MariaDB("asyncmy")


@sample(FailuresTx.test_a_failure_is_undone)
class TestPyMySQLTransactions(TransactionalSuite):
    framework = "asgi"
    backing = MariaDB("pymysql")


@sample()
class TestAsyncmyTransactions(TransactionalSuite):
    framework = "asgi"
    backing = MariaDB("asyncmy")


@sample(Stored)
class TestPysqlite(AdapterSuite):
    framework = "asgi"
    backing = Sqlite("pysqlite")


@sample()
class TestAiosqlite(AdapterSuite):
    framework = "asgi"
    backing = Sqlite("aiosqlite")


@sample(FailuresTx)
class TestPsycopgTransactions(TransactionalSuite):
    framework = "asgi"
    backing = Postgres("psycopg")


@sample(FailuresTx)
class TestAsyncpgTransactions(TransactionalSuite):
    framework = "asgi"
    backing = Postgres("asyncpg")


@sample()
class TestPysqliteTransactions(TransactionalSuite):
    framework = "asgi"
    backing = Sqlite("pysqlite")


@sample(FailuresTx)
class TestAiosqliteTransactions(TransactionalSuite):
    framework = "asgi"
    backing = Sqlite("aiosqlite")


class _Wsgi(TransactionalSuite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


@sample()
class TestWsgiPsycopgTransactions(_Wsgi):
    backing = Postgres("psycopg")


@sample(FailuresTx)
class TestWsgiPysqliteTransactions(_Wsgi):
    backing = Sqlite("pysqlite")


@sample()
class TestWsgiPyMySQLTransactions(_Wsgi):
    backing = MariaDB("pymysql")
