"""`stores.open`: addresses that work, and what the others are told."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retrysafe import stores
from retrysafe.errors import ConfigurationError
from retrysafe.stores.memory import MemoryStore
from retrysafe.stores.sql.postgresql import PostgresStore
from retrysafe.stores.sql.sqlite import SQLiteStore
from retrysafe.testing.stores import a_claim


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_memory(url: str) -> None:
    """Both spellings; every call gives a store of its own."""
    first, second = stores.open(url), stores.open(url)
    assert isinstance(first, MemoryStore)
    assert first is not second


def test_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to where the store was opened, even if the process moves before it is used."""
    monkeypatch.chdir(tmp_path)
    store = stores.open("sqlite:///keys.db")
    monkeypatch.chdir("/")
    store.reserve(a_claim())
    store.close()
    assert (tmp_path / "keys.db").exists()


def test_an_absolute_file(tmp_path: Path) -> None:
    """Four slashes: three of the scheme, one of the path."""
    store = stores.open(f"sqlite:///{tmp_path}/keys.db", deadline=1.0)
    assert isinstance(store, SQLiteStore)
    store.reserve(a_claim())
    store.close()
    assert (tmp_path / "keys.db").exists()


def test_opening_touches_nothing(tmp_path: Path) -> None:
    """The file is made by the process that first needs it, not by the one that names it."""
    stores.open(f"sqlite:///{tmp_path}/keys.db").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql:hunter2@db/app", "two slashes"),
        ("postgresql://user:hunter2@db:port:port/a b", "not a valid PostgreSQL address"),
        ("postgresql://user:hunter2@db/app?hunter=hunter2", "not a valid PostgreSQL address"),
        ("postgresql+psycopg://user:hunter2@db/app", r"stores.from_engine\(engine\)"),
        ("sqlite+aiosqlite:///keys.db", r"stores.from_engine\(engine\), or write sqlite:///keys.db"),
        ("postgres+asyncpg://user:hunter2@db/app", r"stores.from_engine\(engine\)"),
        ("sqlite+aiosqlite:///hunter2.db", r"stores.from_engine\(engine\), or write sqlite:"),
        ("mysql+asyncmy://user:hunter2@db/app", r"stores.from_engine\(engine\), or write mysql://"),
        ("mysql:hunter2@db/app", "two slashes"),
        ("mysql://user:hunter2@db", "names no database"),
        ("mysql://user:hunter2@db/", "names no database"),
        ("mysql://user:hunter2@db/a/b", "names no database"),
        ("mysql://user:hunter2@db:port/app", "not a valid address of MySQL or MariaDB"),
        ("mysql://user:hunter2#@db/app", "not a valid"),
        ("mysql://user:hunter2@db/app#hunter2", "write %23"),
        ("mariadb://user:hunter2@db/app?charset=hunter2", "'charset': expected unix_socket, ssl-mode"),
        ("mariadb://user:hunter2@db/app?hunter2", "not pairs"),
        ("mysql://user:hunter2@db/app?ssl-mode=hunter2", "ssl-mode is not one of disabled, preferred"),
        ("mysql://user:hunter2@db/app?ssl-mode=verify_ca", "needs ssl-ca"),
        ("mysql://user:hunter2@db/app?ssl-mode=disabled&ssl-ca=hunter2", "would ignore ssl-ca"),
        ("mysql://user:hunter2@db/app?ssl-key=hunter2", "needs ssl-cert"),
        ("mysql://user:hunter2@/app?unix_socket=/s&ssl-mode=required", "are not encrypted"),
        ("mysql://user:hunter2@db/app?ssl-ca=", "without a value"),
        ("mysql://user:hunter2@db/app?ssl-ca=a&ssl_ca=b", "twice"),
        ("mysql://user:hunter2@db/app?connect_timeout=hunter2", "not a number of seconds"),
        ("mongodb://user:hunter2@db", "mongodb: is not a known scheme of stores: expected memory:, sqlite"),
        ("sqllite:///hunter2.db", r"did you mean sqlite:\? Expected memory:, sqlite:"),
        ("Postgres://user:hunter2@db/app", r"did you mean postgres:\?"),
        ("//user:hunter2@db/app", "has no scheme"),
        ("hunter2!:x", "has no scheme"),
        ("hunter2", "has no scheme"),
        ("", "has no scheme"),
        ("sqlite:", "write memory:"),
        ("sqlite://", "write memory:"),
        ("sqlite:///", "write memory:"),
        ("sqlite://:memory:", "write memory:"),
        ("sqlite:///:memory:", "write memory:"),
        ("sqlite:keys.db", "three slashes"),
        ("sqlite://keys.db", "three slashes"),
        ("sqlite:/keys.db", "three slashes"),
        ("sqlite:///keys.db?timeout=5", "as keywords"),
        ("memory:somewhere", "takes no name"),
    ],
)
def test_other_addresses_are_refused(url: str, says: str) -> None:
    """At once, with what was found and what there is; a password in the address is not repeated."""
    with pytest.raises(ConfigurationError, match=says) as refused:
        stores.open(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("deadline", [0.0, -1.0, float("nan")])
def test_a_deadline_lies_ahead(deadline: float) -> None:
    """One that has passed would fail every operation, and is refused where it is given."""
    for url in ("sqlite:///keys.db", "postgresql://user@db/app"):
        with pytest.raises(ConfigurationError, match="deadline"):
            stores.open(url, deadline=deadline)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgresql(scheme: str) -> None:
    """Both spellings that libpq knows; nothing is reached for until the store is used."""
    store = stores.open(f"{scheme}://user:secret@nowhere.invalid/app")
    assert isinstance(store, PostgresStore)
    store.close()


def test_postgresql_needs_its_driver() -> None:
    """Where psycopg is missing, the error names what installs it."""
    code = (
        "import sys; sys.modules['psycopg'] = None; from retrysafe import stores\n"
        "try: stores.open('postgresql://user:hunter2@db/app')\n"
        "except stores.ConfigurationError as told: print(told)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'retrysafe[postgres]'" in done.stdout
    assert "hunter2" not in done.stdout


@pytest.mark.parametrize("given", [{}, {"conninfo": "", "connect": print}])
def test_a_postgresql_store_has_one_address(given: dict[str, Any]) -> None:
    """None, or two of them, is a mistake."""
    with pytest.raises(ConfigurationError, match="exactly one of"):
        PostgresStore(**given)


def test_only_sqlite_users_load_sqlite() -> None:
    """The driver and the event loop are imported when an SQLite store is opened, not before."""
    code = (
        "import sys; from retrysafe import stores; stores.open('memory:'); "
        "assert not {'sqlite3', 'asyncio', 'psycopg'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("interval", "says"),
    [
        (0, "cleanup_interval=0 must be greater than 0"),
        (-5.0, "cleanup_interval=-5.0 must be greater than 0"),
        ("soon", "cleanup_interval='soon' is not a valid duration"),
        (True, "cleanup_interval=True is not a valid duration"),
    ],
)
@pytest.mark.parametrize("url", ["memory:", "sqlite:///keys.db", "postgresql://user@db/app"])
def test_an_interval_that_cannot_be_right(url: str, interval: Any, says: str) -> None:
    """Refused by every store when it is made, with what to write instead."""
    with pytest.raises(ConfigurationError, match=says) as refused:
        stores.open(url, cleanup_interval=interval)
    assert "None to run `retrysafe purge`" in str(refused.value)


@pytest.mark.parametrize("interval", [1, 0.5, "5m", timedelta(hours=1), None])
@pytest.mark.parametrize("url", ["memory:", "sqlite:///keys.db", "postgresql://user@db/app"])
def test_every_store_has_an_interval(url: str, interval: Any) -> None:
    """In each form of a duration, or none; one address can be replaced by another."""
    stores.open(url, cleanup_interval=interval).close()
