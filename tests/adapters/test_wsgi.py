"""The plain WSGI middleware against the reference application, under the servers that people use.

All of it under gunicorn with threads.  Under waitress and gunicorn's other ways of working what depends on
them, here and in `test_wsgi_gunicorn.py`, and a part on PostgreSQL; with `RETRYSAFE_LONG=1` all of it too.
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
from retrysafe.testing.adapters.suite import LONG, Suite


class TestThreads(AdapterSuite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


class _Waitress(Suite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "waitress"}
    cannot: ClassVar[Limits] = WAITRESS


class _Sync(Suite):
    framework = "wsgi"
    workers = 5
    options: ClassVar[Mapping[str, Option]] = {"server": "sync"}
    cannot: ClassVar[Limits] = SYNC


class _Preloaded(Suite):
    framework = "wsgi"
    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread", "preload": True}
    cannot: ClassVar[Limits] = GTHREAD


class _OnPostgres(Suite):
    framework = "wsgi"
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD
    backing = Postgres()


class _Three(Suite):
    framework = "wsgi"
    workers = 3
    options: ClassVar[Mapping[str, Option]] = {"server": "gthread"}
    cannot: ClassVar[Limits] = GTHREAD


if not LONG:

    class TestWaitress(_Waitress, PassThrough, Concurrency, Fingerprint, Fidelity, Crash):
        """What depends on how it reads and writes."""

    class TestOnPostgres(_OnPostgres, Stored):
        pass

    class TestThreeProcesses(_Three, Enforcement, Stored):
        pass

    class TestSync(_Sync, Concurrency):
        """What waits for a free worker."""

else:

    class TestWaitressAll(_Waitress, AdapterSuite):
        pass

    class TestSyncAll(_Sync, AdapterSuite):
        pass

    class TestSyncPreloaded(_Sync, AdapterSuite):
        options: ClassVar[Mapping[str, Option]] = {"server": "sync", "preload": True}

    class TestSyncAlone(_Sync, Syntax, Enforcement, Fingerprint, Stored, Fidelity, Scope):
        """One process that serves one request at a time: what needs no second one."""

        workers = 1
        cannot: ClassVar[Limits] = SYNC_ALONE

    class TestPreloadedAll(_Preloaded, AdapterSuite):
        pass

    class TestThreeProcessesOfThreads(_Three, AdapterSuite):
        pass

    class TestOnPostgresAll(_OnPostgres, AdapterSuite):
        pass
