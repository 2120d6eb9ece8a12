"""What is compared with what.  A later store or framework is an entry here and a function in `apps.py`."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from benchmarks import database
from benchmarks.database import Kind
from benchmarks.load import Traffic
from benchmarks.on_django import RUNS
from benchmarks.servers import Server


@dataclass(frozen=True)
class Variant:
    """One row of the table: a server, and what is asked of it."""

    name: str
    label: str
    group: str
    server: Server
    traffic: Traffic
    baseline: str = "bare"
    """The variant of the same group that has no layer at all: ratios are to it."""
    rival: bool = False
    remark: str = ""
    """What a reader of its figures should know."""
    hidden: bool = False
    """Only when it is asked for by its full name."""

    def missing(self) -> list[str]:
        """Modules that it needs and that are not installed."""
        kind = self.server.database
        absent = [module for module in self.server.needs if not _found(module)]
        return [*absent, *(database.missing(kind) if kind is not None else ())]


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there either
        return False


def _both(name: str, label: str, group: str, server: Server, **more: object) -> list[Variant]:
    """Fresh keys and replays, each with a server of its own."""
    traffics: tuple[Traffic, ...] = ("fresh", "replay")
    return [
        Variant(f"{name}-{traffic}", f"{label}, {traffic}", group, server, traffic, **more)  # type: ignore[arg-type]
        for traffic in traffics
    ]


def _written(
    name: str,
    label: str,
    app: str,
    *needs: str,
    database: Kind | None = "PostgreSQL",
    kind: str = "uvicorn",
) -> list[Variant]:
    """A handler that writes to its own table: bare, and guarded in transactional mode."""
    bare, guarded = (Server(f"{app}_{which}", kind, needs, database) for which in ("bare", "tx"))
    return [
        Variant(
            f"{name}-bare",
            f"{label}: bare",
            WRITING,
            bare,
            "no key",
            baseline=f"{name}-bare",
        ),
        *_both(
            name,
            f"{label}: retrysafe",
            WRITING,
            guarded,
            baseline=f"{name}-bare",
        ),
    ]


ASGI = "Starlette under uvicorn"
WSGI = "WSGI under gunicorn (gthread)"
DJANGO = "Django under gunicorn (gthread)"
REST = "Django REST framework under gunicorn (gthread)"
WRITING = "One INSERT, committed"

_FIK = "fastapi_idempotency_key"
_OURS_WSGI = ("retrysafe.wsgi",)

_DJANGO = ("django",)
_REST = ("django", "rest_framework")
_DIK = ("django", "idempotency_key", "django_redis", "rest_framework")
_DRFIK = ("django", "rest_framework", "drf_idempotencykey")
_DIK_REMARK = (
    "django-idempotency-key has a key once the view has responded, so two requests that come together "
    "both run. It was told to repeat the response; by default it says 409. In memory its records are one "
    "process's."
)
_DRFIK_MARK = "\r\ncached-from-idempotency-key: "


def _django(app: str, needs: tuple[str, ...] = _DJANGO, **more: Any) -> Server:
    return Server(f"on_django.{app}", "gunicorn", needs, runs=RUNS, **more)


def _dik(app: str, **more: Any) -> Server:
    return _django(app, _DIK, replayed=None, **more)


def _drfik(**more: Any) -> Server:
    return _django("drfik_table", _DRFIK, replayed=_DRFIK_MARK, **more)


VARIANTS: list[Variant] = [
    Variant("bare", "bare application", ASGI, Server("bare"), "no key"),
    Variant("null", "null ASGI application", ASGI, Server("null"), "no key"),
    Variant("no-key", "retrysafe, no key", ASGI, Server("memory"), "no key"),
    *_both("memory", "retrysafe, memory", ASGI, Server("memory")),
    *_both("sqlite", "retrysafe, SQLite", ASGI, Server("sqlite")),
    *_both("postgres", "retrysafe, PostgreSQL", ASGI, Server("at_address", database="PostgreSQL")),
    *_both("mariadb", "retrysafe, MariaDB", ASGI, Server("at_address", database="MariaDB")),
    *_both("valkey", "retrysafe, Valkey", ASGI, Server("at_address", database="Valkey")),
    *_both(
        "valkey-always",
        "retrysafe, Valkey that flushes always",
        ASGI,
        Server("at_address", database="Valkey, always"),
    ),
    *_both(
        "idemkit-memory",
        "idemkit, memory",
        ASGI,
        Server("idemkit_memory", needs=("idemkit",)),
        rival=True,
        remark="idemkit's memory store goes through all its records at every claim: it slows as it fills.",
    ),
    *_both(
        "fik-memory",
        "fastapi-idempotency-key, memory",
        ASGI,
        Server("fik_memory", needs=(_FIK,)),
        rival=True,
    ),
    *_both(
        "fik-sqlite",
        "fastapi-idempotency-key, SQLite",
        ASGI,
        Server("fik_sqlite", needs=(_FIK, "aiosqlite")),
        rival=True,
    ),
    *_both(
        "idemkit-postgres",
        "idemkit, PostgreSQL",
        ASGI,
        Server("idemkit_postgres", needs=("idemkit", "asyncpg"), database="PostgreSQL"),
        rival=True,
    ),
    *_both(
        "idemkit-valkey",
        "idemkit, Valkey",
        ASGI,
        Server("idemkit_redis", needs=("idemkit",), database="Valkey"),
        rival=True,
    ),
    *_written("tx-psycopg", "psycopg", "writing.psycopg", "psycopg_pool"),
    *_written("tx-session", "Session, FastAPI", "writing.session", "sqlalchemy", "fastapi"),
    *_written("tx-async-session", "AsyncSession, psycopg", "writing.async_session", "sqlalchemy"),
    *_written(
        "tx-asyncpg-session", "AsyncSession, asyncpg", "writing.asyncpg_session", "sqlalchemy", "asyncpg"
    ),
    *_written("tx-pymysql", "PyMySQL, MariaDB", "writing.pymysql", "pymysql", database="MariaDB"),
    *_written(
        "tx-mariadb-session",
        "Session, FastAPI, MariaDB",
        "writing.mariadb_session",
        "sqlalchemy",
        "fastapi",
        database="MariaDB",
    ),
    *_written(
        "tx-mariadb-async-session",
        "AsyncSession, asyncmy, MariaDB",
        "writing.mariadb_async_session",
        "sqlalchemy",
        database="MariaDB",
    ),
    *_written("tx-sqlite", "sqlite3", "writing.sqlite", database=None),
    *_written("tx-django", "Django, PostgreSQL", "on_django.written", *_DJANGO, kind="gunicorn"),
    *_written(
        "tx-django-sqlite", "Django, SQLite", "on_django.written", *_DJANGO, database=None, kind="gunicorn"
    ),
    Variant("wsgi-bare", "bare application", WSGI, Server("wsgi_bare", "gunicorn"), "no key", "wsgi-bare"),
    Variant(
        "wsgi-no-key",
        "retrysafe, no key",
        WSGI,
        Server("wsgi_memory", "gunicorn", _OURS_WSGI),
        "no key",
        "wsgi-bare",
    ),
    *_both(
        "wsgi-memory",
        "retrysafe, memory",
        WSGI,
        Server("wsgi_memory", "gunicorn", _OURS_WSGI),
        baseline="wsgi-bare",
    ),
    *_both(
        "wsgi-sqlite",
        "retrysafe, SQLite",
        WSGI,
        Server("wsgi_sqlite", "gunicorn", _OURS_WSGI),
        baseline="wsgi-bare",
    ),
    Variant("django-bare", "bare application", DJANGO, _django("bare"), "no key", "django-bare"),
    Variant("django-no-key", "retrysafe, no key", DJANGO, _django("table"), "no key", "django-bare"),
    *_both("django-memory", "retrysafe, memory", DJANGO, _django("memory"), baseline="django-bare"),
    *_both("django-sqlite", "retrysafe, SQLite", DJANGO, _django("table"), baseline="django-bare"),
    *_both(
        "django-postgres",
        "retrysafe, PostgreSQL",
        DJANGO,
        _django("table", database="PostgreSQL"),
        baseline="django-bare",
    ),
    *_both(
        "dik-memory",
        "django-idempotency-key, memory",
        DJANGO,
        _dik("dik_memory"),
        baseline="django-bare",
        rival=True,
        remark=_DIK_REMARK,
    ),
    *_both(
        "dik-sqlite",
        "django-idempotency-key, SQLite",
        DJANGO,
        _dik("dik_table"),
        baseline="django-bare",
        rival=True,
        remark=_DIK_REMARK,
    ),
    *_both(
        "dik-postgres",
        "django-idempotency-key, PostgreSQL",
        DJANGO,
        _dik("dik_table", database="PostgreSQL"),
        baseline="django-bare",
        rival=True,
        remark=_DIK_REMARK,
    ),
    Variant("drf-bare", "bare application", REST, _django("drf_bare", _REST), "no key", "drf-bare"),
    *_both("drf-sqlite", "retrysafe, SQLite", REST, _django("drf_table", _REST), baseline="drf-bare"),
    *_both(
        "drf-postgres",
        "retrysafe, PostgreSQL",
        REST,
        _django("drf_table", _REST, database="PostgreSQL"),
        baseline="drf-bare",
    ),
    *_both("drfik-sqlite", "drf-idempotencykey, SQLite", REST, _drfik(), baseline="drf-bare", rival=True),
    *_both(
        "drfik-postgres",
        "drf-idempotencykey, PostgreSQL",
        REST,
        _drfik(database="PostgreSQL"),
        baseline="drf-bare",
        rival=True,
    ),
    # For the benchmark's own tests: a server that answers wrongly must be noticed, and one that runs what it
    # should replay.
    Variant(
        "runs-again",
        "a server that runs what it should replay",
        DJANGO,
        _django("bare", replayed=None),
        "replay",
        "django-bare",
        hidden=True,
    ),
    Variant("wrong", "a server that answers wrongly", ASGI, Server("wrong"), "no key", hidden=True),
]


def choose(patterns: Sequence[str]) -> list[Variant]:
    """The variants that the patterns name, and what they are compared with; all, if there are none."""
    if not patterns:
        return [variant for variant in VARIANTS if not variant.hidden]
    for pattern in patterns:
        if not any(_named(variant, pattern) for variant in VARIANTS):
            names = ", ".join(variant.name for variant in VARIANTS if not variant.hidden)
            raise SystemExit(f"no variant is called {pattern!r}; there are {names} (and patterns: 'sqlite*')")
    named = [v for v in VARIANTS if any(_named(v, pattern) for pattern in patterns)]
    baselines = {variant.baseline for variant in named}
    return [variant for variant in VARIANTS if variant in named or variant.name in baselines]


def _named(variant: Variant, pattern: str) -> bool:
    return variant.name == pattern or (not variant.hidden and fnmatch(variant.name, pattern))
