"""The plain ASGI middleware against the reference application, in lease mode.

All of it in one process on SQLite.  On other stores and with several processes a sample; in `make test-all`
all of it there too.
"""

from retrysafe.testing.adapters import (
    Abandoned,
    AdapterSuite,
    Clock,
    Concurrency,
    Enforcement,
    Memory,
    Outage,
    Stored,
)
from retrysafe.testing.adapters.mariadb import MariaDB
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.valkey import Valkey
from tests.adapters.sampling import sample


class TestOneProcess(AdapterSuite):
    framework = "asgi"


@sample(
    Stored,
    # Claims that race, and leases and fences of a store of its own; and its server's clock.
    Concurrency.test_a_hundred_at_once,
    Concurrency.test_waiting_for_the_first_one,
    Abandoned.test_killed_and_taken_over,
    Abandoned.test_frozen_and_overtaken,
    Clock.test_a_wrong_clock,
    Clock.test_after_the_retention,
)
class TestPostgres(AdapterSuite):
    framework = "asgi"
    backing = Postgres()


class TestPostgresStopped(Outage):
    """The server itself is gone for a while, and not only room for records."""

    framework = "asgi"
    backing = Postgres(outage="stopped")


@sample()
class TestPostgresLocked(Outage):
    """Another session has locked the table of records, and holds the lock."""

    framework = "asgi"
    backing = Postgres(outage="locked")


@sample(
    Concurrency.test_a_hundred_at_once,
    Abandoned.test_frozen_and_overtaken,
    Clock.test_after_the_retention,
    Stored.test_a_response_that_says_no,
    Outage.test_at_the_end,
)
class TestMariaDB(AdapterSuite):
    framework = "asgi"
    backing = MariaDB()


@sample(Outage.test_a_short_one_at_the_end)
class TestMariaDBStopped(Outage):
    """The server is killed, and started again."""

    framework = "asgi"
    backing = MariaDB(outage="stopped")


@sample(Outage.test_at_the_claim)
class TestMariaDBLocked(Outage):
    """Another session has locked the table of records, and holds the lock."""

    framework = "asgi"
    backing = MariaDB(outage="locked")


@sample(
    Concurrency.test_a_hundred_at_once,
    Abandoned.test_frozen_and_overtaken,
    Clock.test_after_the_retention,
    Stored.test_a_response_that_says_no,
    Outage.test_at_the_end,
)
class TestValkey(AdapterSuite):
    """There is no memory for records during an outage."""

    framework = "asgi"
    backing = Valkey()


@sample(Outage.test_a_short_one_at_the_end)
class TestValkeyStopped(Outage):
    """The server is killed, and started again with what it had written."""

    framework = "asgi"
    backing = Valkey(outage="stopped")


@sample(Outage.test_at_the_claim)
class TestValkeyFrozen(Outage):
    """The server says nothing."""

    framework = "asgi"
    backing = Valkey(outage="frozen")


class TestMemory(Enforcement, Stored):
    """A smoke test: the store that is for tests behaves as the one that is not."""

    framework = "asgi"
    backing = Memory()


@sample(
    Concurrency.test_a_hundred_at_once,
    Concurrency.test_a_duplicate_meanwhile,
    Concurrency.test_waiting_for_the_first_one,
)
class TestThreeProcesses(AdapterSuite):
    """In every run: which is first, of several processes."""

    framework = "asgi"
    workers = 3


@sample(Concurrency.test_a_hundred_at_once)
class TestThreeOnPostgres(TestThreeProcesses):
    backing = Postgres()


@sample(Concurrency.test_a_hundred_at_once)
class TestThreeOnMariaDB(TestThreeProcesses):
    backing = MariaDB()


@sample(Concurrency.test_a_hundred_at_once)
class TestThreeOnValkey(TestThreeProcesses):
    backing = Valkey()
