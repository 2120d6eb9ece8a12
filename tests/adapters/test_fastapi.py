"""FastAPI against the reference application: endpoints that claim after dependencies and validation.

All of it in one process on SQLite, and what a transaction makes different.  On PostgreSQL and with several
processes a sample; in `make test-all` all of it there too.
"""

from retrysafe.testing.adapters import (
    Abandoned,
    AbandonedTx,
    AdapterSuite,
    Concurrency,
    FailuresTx,
    OutageTx,
    StreamingTx,
    TransactionalSuite,
)
from retrysafe.testing.adapters.postgres import Postgres
from tests.adapters.sampling import sample


class TestOneProcess(AdapterSuite):
    framework = "fastapi"


@sample(Concurrency.test_a_hundred_at_once, Abandoned.test_killed_and_taken_over)
class TestPostgres(AdapterSuite):
    framework = "fastapi"
    backing = Postgres()


@sample(Concurrency.test_a_hundred_at_once)
class TestThreeProcesses(AdapterSuite):
    framework = "fastapi"
    workers = 3


@sample(FailuresTx, StreamingTx, AbandonedTx, OutageTx)
class TestTransactions(TransactionalSuite):
    """In every run what a transaction makes different: the rest is the same as in lease mode."""

    framework = "fastapi"


@sample(
    FailuresTx.test_a_failure_is_undone,
    Concurrency.test_a_hundred_at_once,
    AbandonedTx.test_killed_before_the_commit,
)
class TestTransactionsOnPostgres(TransactionalSuite):
    framework = "fastapi"
    backing = Postgres()
