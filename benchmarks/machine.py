"""What the figures were measured on."""

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import sysconfig
import tempfile
import time
from pathlib import Path

PACKAGES = ("retrysafe", "starlette", "fastapi", "uvicorn", "uvloop", "httptools", "gunicorn")
DRIVERS = ("psycopg", "psycopg-pool", "sqlalchemy", "asyncpg", "aiosqlite")
RIVALS = ("idemkit", "fastapi-idempotency-key")

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
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "drivers": ", ".join(f"{name} {_version(name)}" for name in DRIVERS),
        "rivals": ", ".join(f"{name} {_version(name)}" for name in RIVALS),
    }


def facts_of_python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}, {_build()}"


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


def _build() -> str:
    """An interpreter that was not built with profile-guided optimisation is a fifth slower or more."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return f"built {'with' if '--enable-optimizations' in arguments else 'without'} --enable-optimizations"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
