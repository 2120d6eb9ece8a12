"""The plain WSGI middleware against the reference application, under the servers that people use.

All of it under gunicorn with threads.  Under waitress and gunicorn's other ways of working what depends on
them, here and in `test_wsgi_gunicorn.py`, and a sample on PostgreSQL; in `make test-all` all of it too.
"""

from collections.abc import Mapping
from typing import ClassVar

from retrysafe.testing.adapters import (
    AdapterSuite,
    Concurrency,
    Crash,
    Enforcement,
    Fidelity,
    Fingerprint,
    PassThrough,
    Scope,
    Stored,
    Syntax,
)
from retrysafe.testing.adapters.limits import GTHREAD, SYNC, SYNC_ALONE, WAITRESS, Limits
from retrysafe.testing.adapters.postgres import Postgres
from retrysafe.testing.adapters.server import Option
from tests.adapters.sampling import sample


class TestThreads(AdapterSuite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


@sample(PassThrough, Concurrency.test_a_hundred_at_once, Fingerprint, Fidelity, Crash)
class TestWaitress(AdapterSuite):
    """In every run what depends on how it reads and writes, and on its threads."""

    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "waitress"}
    cannot: ClassVar[Limits] = WAITRESS


@sample(Concurrency.test_a_hundred_at_once, Concurrency.test_waiting_for_the_first_one)
class TestSync(AdapterSuite):
    """In every run what waits for a free worker."""

    framework = "wsgi"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = SYNC


@sample()
class TestSyncPreloaded(TestSync):
    options: ClassVar[Mapping[str, Option]] = {"server": "sync", "preload": True}


@sample()
class TestSyncAlone(Syntax, Enforcement, Fingerprint, Stored, Fidelity, Scope):
    """One process that serves one request at a time: what needs no second one."""

    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = SYNC_ALONE


@sample(Stored)
class TestThreeProcesses(TestThreads):
    workers = 3


@sample()
class TestPreloaded(TestThreads):
    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread", "preload": True}


@sample(Stored)
class TestOnPostgres(TestThreads):
    backing = Postgres()
