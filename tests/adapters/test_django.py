"""Django against the reference application: views that claim after the middleware that authenticates.

`django` is served over WSGI; all of it under gunicorn with threads on SQLite, and what a transaction makes
different.  `django-async` is served over ASGI, and its views are `async def`, but blocking in transactions.
On PostgreSQL, under gunicorn's sync workers and waitress and with several processes a sample; in
`make test-all` all of it there too.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    Abandoned,
    AbandonedTx,
    AdapterSuite,
    Concurrency,
    Crash,
    FailuresTx,
    Fingerprint,
    OutageTx,
    StreamingTx,
    TransactionalSuite,
)
from retrysafe.testing.adapters.limits import (
    DJANGO_ASYNC,
    DJANGO_ASYNC_TX,
    DJANGO_GTHREAD,
    DJANGO_SYNC,
    DJANGO_WAITRESS,
    Limits,
)
from retrysafe.testing.adapters.mariadb import MariaDB
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from tests.adapters.sampling import sample


class TestThreads(AdapterSuite):
    framework = "django"
    cannot: ClassVar[Limits] = DJANGO_GTHREAD


@sample(Concurrency.test_a_hundred_at_once, Concurrency.test_waiting_for_the_first_one)
class TestSync(AdapterSuite):
    framework = "django"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = DJANGO_SYNC


@sample(Fingerprint)
class TestWaitress(AdapterSuite):
    """In every run what depends on how it reads bodies."""

    framework = "django"
    options: ClassVar[Mapping[str, Option]] = {"server": "waitress"}
    cannot: ClassVar[Limits] = DJANGO_WAITRESS


@sample(Concurrency.test_a_hundred_at_once, Abandoned.test_killed_and_taken_over)
class TestPostgres(TestThreads):
    backing = Postgres()


@sample()
class TestPreloadedOnPostgres(TestThreads):
    """The project is loaded before the fork: no connection of the parent's may be used by a child."""

    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"preload": True}
    backing = Postgres()


@sample(FailuresTx, StreamingTx, AbandonedTx, OutageTx)
class TestTransactions(TransactionalSuite):
    """In every run what a transaction makes different: the rest is the same as in lease mode."""

    framework = "django"
    cannot: ClassVar[Limits] = DJANGO_GTHREAD


@sample(
    FailuresTx,
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_frozen_in_its_transaction,
    # The server rolls back what its client did not live to commit.
    AbandonedTx.test_killed_before_the_commit,
    AbandonedTx.test_killed_after_the_commit,
)
class TestTransactionsOnPostgres(TestTransactions):
    backing = Postgres()


@sample(
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_frozen_in_its_transaction,
    AbandonedTx.test_killed_before_the_commit,
)
class TestTransactionsOnMariaDB(TestTransactions):
    backing = MariaDB()


class TestTransactionsOnPostgresStopped(OutageTx):
    """The server itself is gone for a while, and not only room for records."""

    framework = "django"
    backing = Postgres(outage="stopped")
    tx = True


@sample(FailuresTx.test_a_failure_is_undone, Concurrency.test_a_hundred_at_once)
class TestTransactionsPreloadedOnPostgres(TestTransactionsOnPostgres):
    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"preload": True}


@sample()
class TestTransactionsInSync(TransactionalSuite):
    framework = "django"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = DJANGO_SYNC


class TestAsync(AdapterSuite):
    framework = "django-async"
    cannot: ClassVar[Limits] = DJANGO_ASYNC


@sample(Concurrency.test_a_hundred_at_once, Crash.test_a_rolling_deploy)
class TestAsyncInThree(TestAsync):
    workers = 3


@sample(Concurrency.test_a_hundred_at_once, Abandoned.test_killed_and_taken_over)
class TestAsyncOnPostgres(TestAsync):
    backing = Postgres()


@sample(FailuresTx, StreamingTx, AbandonedTx, OutageTx)
class TestAsyncTransactions(TransactionalSuite):
    """Its views are not `async def`: a transaction of Django's is one thread's."""

    framework = "django-async"
    cannot: ClassVar[Limits] = DJANGO_ASYNC_TX


@sample(
    FailuresTx.test_a_failure_is_undone,
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_killed_before_the_commit,
)
class TestAsyncTransactionsOnPostgres(TestAsyncTransactions):
    backing = Postgres()
