"""Flask against the reference application: views that claim after authentication.

All of it under gunicorn with threads on SQLite, and what a transaction makes different.  On PostgreSQL, under
gunicorn's sync workers and waitress a sample; in `make test-all` all of it there too.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    Abandoned,
    AbandonedTx,
    AdapterSuite,
    Concurrency,
    FailuresTx,
    Fingerprint,
    OutageTx,
    StreamingTx,
    TransactionalSuite,
)
from retrysafe.testing.adapters.limits import GTHREAD, SYNC, WAITRESS, Limits
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from tests.adapters.sampling import sample


class TestThreads(AdapterSuite):
    framework = "flask"
    cannot: ClassVar[Limits] = GTHREAD


@sample(Concurrency.test_a_hundred_at_once, Concurrency.test_waiting_for_the_first_one)
class TestSync(AdapterSuite):
    framework = "flask"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = SYNC


@sample(Fingerprint)
class TestWaitress(AdapterSuite):
    """In every run what depends on how it reads bodies."""

    framework = "flask"
    options: ClassVar[Mapping[str, Option]] = {"server": "waitress"}
    cannot: ClassVar[Limits] = WAITRESS


@sample(Concurrency.test_a_hundred_at_once, Abandoned.test_killed_and_taken_over)
class TestPostgres(TestThreads):
    backing = Postgres()


@sample(FailuresTx, StreamingTx, AbandonedTx, OutageTx)
class TestTransactions(TransactionalSuite):
    """In every run what a transaction makes different: the rest is the same as in lease mode."""

    framework = "flask"
    cannot: ClassVar[Limits] = GTHREAD


@sample(
    FailuresTx.test_a_failure_is_undone,
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_killed_before_the_commit,
)
class TestTransactionsOnPostgres(TestTransactions):
    backing = Postgres()


@sample()
class TestTransactionsInSync(TransactionalSuite):
    framework = "flask"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = SYNC
