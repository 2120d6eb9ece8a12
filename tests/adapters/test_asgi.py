"""The plain ASGI middleware against the reference application, in lease mode.

All of it in one process, on SQLite and on PostgreSQL.  With several processes what depends on them; with
`RETRYSAFE_LONG=1` all of it there too.
"""

from retrysafe.testing.adapters import (
    AdapterSuite,
    Concurrency,
    Enforcement,
    Memory,
    Outage,
    Stored,
    Suite,
)
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.suite import LONG


class TestOneProcess(AdapterSuite):
    framework = "asgi"


class TestPostgres(AdapterSuite):
    framework = "asgi"
    backing = Postgres()


class TestPostgresStopped(Outage):
    """The server itself is gone for a while, and not only room for records."""

    framework = "asgi"
    backing = Postgres(outage="stopped")


class TestMemory(Enforcement, Stored):
    """A smoke test: the store that is for tests behaves as the one that is not."""

    framework = "asgi"
    backing = Memory()


class _Three(Suite):
    framework = "asgi"
    workers = 3


class _ThreeOnPostgres(_Three):
    backing = Postgres()


if not LONG:

    class TestThreeProcesses(_Three, Concurrency):
        """Who is first, of several processes."""

    class TestThreeOnPostgres(_ThreeOnPostgres, Stored):
        pass

else:

    class TestThreeProcessesAll(_Three, AdapterSuite):
        pass

    class TestThreeOnPostgresAll(_ThreeOnPostgres, AdapterSuite):
        pass

    class TestPostgresLocked(Outage):
        """Somebody has locked the table of records and does not let go."""

        framework = "asgi"
        backing = Postgres(outage="locked")
