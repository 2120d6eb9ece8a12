"""Transactional mode against the reference application: its effects are rows in the store's database.

All of it for ASGI in one process, on SQLite and on PostgreSQL.  Elsewhere a part of it; with
`RETRYSAFE_LONG=1` all of it there too.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    AbandonedTx,
    FailuresTx,
    OutageTx,
    Stored,
    StreamingTx,
    Suite,
    TransactionalSuite,
)
from retrysafe.testing.adapters.limits import GTHREAD, Limits
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from retrysafe.testing.adapters.suite import LONG


class TestAsgiOnSqlite(TransactionalSuite):
    framework = "asgi"


class TestAsgiOnPostgres(TransactionalSuite):
    framework = "asgi"
    backing = Postgres()


class TestAsgiOnPostgresStopped(OutageTx):
    """The server itself is gone for a while, and not only room for records."""

    framework = "asgi"
    backing = Postgres(outage="stopped")
    tx = True


class _Wsgi(Suite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD
    tx = True


class _AsgiInThree(Suite):
    framework = "asgi"
    workers = 3
    tx = True


class _AsgiInThreeOnPostgres(_AsgiInThree):
    backing = Postgres()


class _WsgiOnPostgres(_Wsgi):
    backing = Postgres()


class _WsgiInThreeOnPostgres(_Wsgi):
    """The application is loaded before the fork: no connection of the parent's may be used by a child."""

    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread", "preload": True}
    backing = Postgres()


if not LONG:

    class TestWsgiOnSqlite(_Wsgi, Stored, FailuresTx, StreamingTx, AbandonedTx, OutageTx):
        """What a transaction makes different."""

    class TestAsgiInThree(_AsgiInThree, FailuresTx):
        pass

    class TestAsgiInThreeOnPostgres(_AsgiInThreeOnPostgres, FailuresTx):
        pass

    class TestWsgiOnPostgres(_WsgiOnPostgres, FailuresTx):
        pass

    class TestWsgiInThreeOnPostgres(_WsgiInThreeOnPostgres, FailuresTx):
        pass

else:

    class TestWsgiOnSqliteAll(_Wsgi, TransactionalSuite):
        pass

    class TestAsgiInThreeAll(_AsgiInThree, TransactionalSuite):
        pass

    class TestAsgiInThreeOnPostgresAll(_AsgiInThreeOnPostgres, TransactionalSuite):
        pass

    class TestWsgiOnPostgresAll(_WsgiOnPostgres, TransactionalSuite):
        pass

    class TestWsgiInThreeOnPostgresAll(_WsgiInThreeOnPostgres, TransactionalSuite):
        pass
