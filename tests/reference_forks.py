"""Reference applications that are forked from a process that has imported them, and not started.

Most of the time until one serves is spent on importing, and tests start hundreds of them.  With
`RETRYSAFE_LONG=1` each is started, as its users start it.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache

from retrysafe.testing.adapters.server import Process, start
from tests.forkserver import ForkServer

_UVICORN = (
    "retrysafe.testing.reference.serve",
    "retrysafe.stores.queue_loop",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)
_GUNICORN = (
    "retrysafe.testing.reference.serve_wsgi",
    "gunicorn.app.base",
    "gunicorn.arbiter",
    "gunicorn.glogging",
    "gunicorn.workers.gthread",
)
SERVERS = {
    "asgi": _UVICORN,
    "django": _GUNICORN,
    "django-async": (*_UVICORN, "django.core.handlers.asgi"),
    "fastapi": _UVICORN,
    "flask": _GUNICORN,
    "wsgi": _GUNICORN,
}
"""What serves an application, by framework."""

STORES = {
    "sqlite": ("retrysafe.stores.sql.sqlite", "retrysafe.sqlite3"),
    "postgresql": ("retrysafe.stores.sql.postgresql", "retrysafe.psycopg", "psycopg_pool"),
}
"""What opens a store, by the scheme of its address."""

# Some of a framework is imported by the first route, hence an application.
_PREPARE = """
import importlib.resources.readers, pathlib, tempfile
for module in {modules}:
    importlib.import_module(module)
from retrysafe import Guard, profiles
from retrysafe.testing.reference import principals, tables
from retrysafe.testing.reference.journal import Files
from retrysafe.testing.reference.service import Service
from retrysafe.testing.reference.{framework} import build
guard = Guard("memory:", scope=principals.signed_in_or_public)
with tempfile.TemporaryDirectory() as folder:
    build(Service(Files(pathlib.Path(folder, "effects"))), guard)
guard.close()
"""


DJANGO = (
    "django.core.handlers.wsgi",
    "django.core.management.commands.migrate",
    "django.db.migrations.executor",
    "retrysafe.stores.sql.django",
    "retrysafe.testing.reference.django.layers",
    "retrysafe.testing.reference.django.project",
    "rest_framework.serializers",
)
BACKENDS = {"sqlite": "django.db.backends.sqlite3.base", "postgresql": "django.db.backends.postgresql.base"}
"""Of Django's, by the scheme of a store's address."""

# A process is configured once, by the command line of its application, and there are no views before that.
_PREPARE_DJANGO = """
import importlib.resources.readers
for module in {modules}:
    importlib.import_module(module)
from retrysafe import Guard, profiles
from retrysafe.testing.reference import principals, service, tables
"""


@cache
def _forkserver(framework: str, scheme: str) -> ForkServer:
    """One for each kind, so that no application has another one's libraries."""
    if framework.startswith("django"):
        modules = (*SERVERS[framework], *DJANGO, STORES[scheme][0], BACKENDS[scheme])
        return ForkServer(_PREPARE_DJANGO.format(modules=modules))
    return ForkServer(_PREPARE.format(framework=framework, modules=SERVERS[framework] + STORES[scheme]))


def fork(program: Sequence[str], stdout: int, stderr: int) -> Process:
    """Instead of `start`, where it can be.

    A wrong clock has to be wrong before anything is imported, and engines have more drivers than are worth
    it.  On other systems than Linux some libraries do not survive a fork.
    """
    at = next(number for number, argument in enumerate(program) if argument.startswith("--store="))
    framework, scheme = program[at - 1], program[at].removeprefix("--store=").partition(":")[0]
    if sys.platform != "linux" or program[0] == "-c" or framework not in SERVERS or scheme not in STORES:
        return start(program, stdout, stderr)
    with open(os.devnull) as nothing:
        return _forkserver(framework, scheme).start(program, (nothing.fileno(), stdout, stderr))
