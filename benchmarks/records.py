"""Fills a store with as many records as one wants, in seconds.

The store itself makes the tables and one record; the database then copies that row with identities of their
own.  So the rows are what this release writes, whatever its columns are.
"""

import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.database import Database
from benchmarks.servers import Running, Server
from retrysafe import stores
from retrysafe._core.model import Claim, Final, Response

DAY = 86_400.0

ANSWER = Final(
    "completed",
    Response(
        201,
        ((b"content-type", b"application/json"), (b"location", b"/charges/1")),
        b'{"id":1,"amount":100}',
    ),
)


@dataclass(frozen=True)
class Place:
    """A store of the benchmark's own, which this process and a server of it can open."""

    folder: Path
    url: str

    @classmethod
    def new(cls, store: str, folder: Path, database: Database | None) -> "Place":
        """An empty one, in SQLite or PostgreSQL."""
        folder.mkdir(parents=True)
        if store == "SQLite":
            return cls(folder, f"sqlite:///{folder / 'keys.db'}")
        assert database is not None
        return cls(folder, database.new())

    @property
    def file(self) -> Path | None:
        """Of SQLite."""
        return self.folder / "keys.db" if self.url.startswith("sqlite:") else None

    def serve(self, core: int | None) -> Running:
        """A server with this store."""
        if self.file is not None:
            return Running(Server("sqlite"), self.folder, core)
        return Running(Server("postgres", database=True), self.folder, core, self.url)


def claim(id: bytes | None = None) -> Claim:
    """As a request makes it."""
    return Claim(
        id=id or os.urandom(32),
        token=os.urandom(16),
        fingerprint=bytes(32),
        lease=30.0,
        retention=DAY,
        hold=30 * DAY,
        door="request",
        scope=(("header:x-tenant", "acme"),),
        key=os.urandom(16).hex(),
        action="POST",
        target="/charges",
        request_id=os.urandom(16).hex(),
    )


def fill(place: Place, count: int, *, expired: bool = False) -> None:
    """Make the tables and `count` completed records that live for hours yet, or have expired.

    They were created one after the other in the last 23 hours; or, to have expired, two days before.  Rows
    that were made together expire together, so a purge finds them side by side, as it does in a store that
    has grown.
    """
    store = stores.open(place.url, deadline=60)
    first = claim()
    store.reserve(first)
    store.finish(first, ANSWER)
    store.close()
    age = 2 * DAY if expired else 0
    if place.file is not None:
        _fill_sqlite(place.file, count, age)
    else:
        _fill_postgresql(place.url, count, age)


_TIMES = ("created_at", "updated_at", "completed_at", "lease_until", "expires_at", "held_until")


def _fill_sqlite(path: Path, count: int, age: float) -> None:
    shift = "(:age + 82800.0 * (:count - n) / :count)"
    changed = {
        "id": "randomblob(32)",
        "token": "randomblob(16)",
        "key": "lower(hex(randomblob(16)))",
        "request_id": "lower(hex(randomblob(16)))",
        **{name: f"{name} - {shift}" for name in _TIMES},
    }
    database = sqlite3.connect(path, isolation_level=None)
    # No other process has it open, and if this is interrupted the file is thrown away.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        database.execute(f"PRAGMA {pragma}")
    columns = [row[1] for row in database.execute("PRAGMA table_info(retrysafe_records)")]
    database.execute(
        f"""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
        INSERT INTO retrysafe_records ({", ".join(columns)})
        SELECT {_values(columns, changed)} FROM number, (SELECT * FROM retrysafe_records LIMIT 1)
        """,
        {"count": count, "age": age},
    )
    database.execute("PRAGMA journal_mode = WAL")
    database.close()


def _fill_postgresql(url: str, count: int, age: float) -> None:
    import psycopg

    shift = f"interval '1 second' * ({age} + 82800.0 * ({count} - n) / {count})"
    digits = "replace(gen_random_uuid()::text, '-', '')"
    changed = {
        "id": "sha256(uuid_send(gen_random_uuid()))",
        "token": "uuid_send(gen_random_uuid())",
        "key": digits,
        "request_id": digits,
        **{name: f"{name} - {shift}" for name in _TIMES},
    }
    with psycopg.connect(url, autocommit=True) as database:
        # If the machine stops, the whole server is thrown away.
        database.execute("SET synchronous_commit = off")
        found = database.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'retrysafe_records'::regclass"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        columns = [row[0] for row in found]
        database.execute(
            f"""
            INSERT INTO retrysafe_records ({", ".join(columns)})
            SELECT {_values(columns, changed)}
            FROM generate_series(1, {count}) AS n, (SELECT * FROM retrysafe_records LIMIT 1) AS first
            """.encode()
        )
        # What autovacuum would do within a minute, so that it does not do it while something is measured.
        database.execute("VACUUM (ANALYZE) retrysafe_records")
        database.execute("CHECKPOINT")


def _values(columns: list[str], changed: Mapping[str, str]) -> str:
    return ", ".join(changed.get(column, column) for column in columns)


def some_ids(place: Place, count: int) -> list[bytes]:
    """Identities of records all over the table."""
    if place.file is None:
        import psycopg

        with psycopg.connect(place.url) as connection:
            every = connection.execute("SELECT id FROM retrysafe_records ORDER BY created_at").fetchall()
    else:
        database = sqlite3.connect(place.file)
        every = database.execute("SELECT id FROM retrysafe_records ORDER BY rowid").fetchall()
        database.close()
    step = max(1, len(every) // count)
    return [id for (id,) in every[::step][:count]]
