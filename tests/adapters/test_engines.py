"""The reference application with an engine of SQLAlchemy's, blocking and asynchronous, in both modes.

The store has it (`stores.from_engine`), and in transactional mode the application's sessions join by it.  A
part of the suite; with `RETRYSAFE_LONG=1` all of it.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    AdapterSuite,
    FailuresTx,
    Sqlite,
    Stored,
    Suite,
    TransactionalSuite,
)
from retrysafe.testing.adapters.limits import GTHREAD, Limits
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from retrysafe.testing.adapters.suite import LONG


class _Asgi(Suite):
    framework = "asgi"


class _Wsgi(Suite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


if not LONG:

    class _Leases(Stored):
        pass

    class _Transactions(FailuresTx):
        tx = True

    class TestPsycopg(_Asgi, _Leases):
        backing = Postgres("psycopg")

    class TestAsyncpg(_Asgi, _Leases):
        backing = Postgres("asyncpg")

    class TestPysqlite(_Asgi, _Leases):
        backing = Sqlite("pysqlite")

    class TestAiosqlite(_Asgi, _Leases):
        backing = Sqlite("aiosqlite")

    class TestPsycopgTransactions(_Asgi, _Transactions):
        backing = Postgres("psycopg")

    class TestAsyncpgTransactions(_Asgi, _Transactions):
        backing = Postgres("asyncpg")

    class TestPysqliteTransactions(_Asgi, _Transactions):
        backing = Sqlite("pysqlite")

    class TestAiosqliteTransactions(_Asgi, _Transactions):
        backing = Sqlite("aiosqlite")

    class TestWsgiPsycopgTransactions(_Wsgi, _Transactions):
        backing = Postgres("psycopg")

    class TestWsgiPysqliteTransactions(_Wsgi, _Transactions):
        backing = Sqlite("pysqlite")

else:

    class TestPsycopgAll(_Asgi, AdapterSuite):
        backing = Postgres("psycopg")

    class TestAsyncpgAll(_Asgi, AdapterSuite):
        backing = Postgres("asyncpg")

    class TestPysqliteAll(_Asgi, AdapterSuite):
        backing = Sqlite("pysqlite")

    class TestAiosqliteAll(_Asgi, AdapterSuite):
        backing = Sqlite("aiosqlite")

    class TestPsycopgTransactionsAll(_Asgi, TransactionalSuite):
        backing = Postgres("psycopg")

    class TestAsyncpgTransactionsAll(_Asgi, TransactionalSuite):
        backing = Postgres("asyncpg")

    class TestPysqliteTransactionsAll(_Asgi, TransactionalSuite):
        backing = Sqlite("pysqlite")

    class TestAiosqliteTransactionsAll(_Asgi, TransactionalSuite):
        backing = Sqlite("aiosqlite")

    class TestWsgiPsycopgTransactionsAll(_Wsgi, TransactionalSuite):
        backing = Postgres("psycopg")

    class TestWsgiPysqliteTransactionsAll(_Wsgi, TransactionalSuite):
        backing = Sqlite("pysqlite")
