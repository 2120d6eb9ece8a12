"""Transactional mode against the reference application: its effects are rows in the store's database.

All of it for ASGI in one process on SQLite, and for WSGI what a transaction makes different.  Elsewhere a
sample; in `make test-all` all of it there too.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    AbandonedTx,
    Concurrency,
    FailuresTx,
    OutageTx,
    Stored,
    StreamingTx,
    TransactionalSuite,
)
from retrysafe.testing.adapters.limits import GTHREAD, Limits
from retrysafe.testing.adapters.mariadb import MariaDB
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from tests.adapters.sampling import sample


class TestAsgiOnSqlite(TransactionalSuite):
    framework = "asgi"


@sample(
    FailuresTx,
    Concurrency.test_a_hundred_at_once,
    # SQLite has one writer at a time, and so other answers to these.
    Concurrency.test_different_keys_do_not_wait,
    AbandonedTx.test_frozen_in_its_transaction,
    # The server rolls back what its client did not live to commit.
    AbandonedTx.test_killed_before_the_commit,
    AbandonedTx.test_killed_after_the_commit,
)
class TestAsgiOnPostgres(TransactionalSuite):
    framework = "asgi"
    backing = Postgres()


class TestAsgiOnPostgresStopped(OutageTx):
    """The server itself is gone for a while, and not only room for records."""

    framework = "asgi"
    backing = Postgres(outage="stopped")
    tx = True


@sample(Stored, FailuresTx, StreamingTx, AbandonedTx, OutageTx)
class TestWsgiOnSqlite(TransactionalSuite):
    """In every run what a transaction makes different: the rest is the same as in lease mode."""

    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


@sample(FailuresTx.test_a_failure_is_undone)
class TestAsgiInThree(TransactionalSuite):
    framework = "asgi"
    workers = 3


@sample(FailuresTx.test_a_failure_is_undone)
class TestAsgiInThreeOnPostgres(TestAsgiInThree):
    backing = Postgres()


@sample(FailuresTx)
class TestWsgiOnPostgres(TestWsgiOnSqlite):
    backing = Postgres()


@sample(FailuresTx.test_a_failure_is_undone)
class TestWsgiInThreeOnPostgres(TestWsgiOnPostgres):
    """The application is loaded before the fork: no connection of the parent's may be used by a child."""

    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread", "preload": True}


@sample(
    FailuresTx.test_a_failure_is_undone,
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_frozen_in_its_transaction,
    # The server rolls back what its client did not live to commit.
    AbandonedTx.test_killed_before_the_commit,
    OutageTx.test_at_the_end,
)
class TestAsgiOnMariaDB(TransactionalSuite):
    framework = "asgi"
    backing = MariaDB()


@sample(OutageTx.test_at_the_claim)
class TestAsgiOnMariaDBStopped(OutageTx):
    """The server is killed, and started again: the next request finds it, whatever was refused meanwhile."""

    framework = "asgi"
    backing = MariaDB(outage="stopped")
    tx = True


@sample(FailuresTx.test_a_failure_is_undone)
class TestWsgiOnMariaDB(TestWsgiOnSqlite):
    backing = MariaDB()
